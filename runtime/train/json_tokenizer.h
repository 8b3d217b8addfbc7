// The tokenizer that a tokenizer.json describes.
#pragma once

#include <memory>
#include <string>

#include "runtime/train/tokenizer.h"
#include "runtime/train/tokenizer_companions.h"
#include "runtime/train/tokenizer_file.h"

namespace tessera {

// path: for messages. DataError where the companions name a token that is not there.
std::unique_ptr<Tokenizer> make_json_tokenizer(TokenizerFile file, const TokenizerCompanions& companions,
                                               const std::string& path);

// Reads the file and those beside it.
std::unique_ptr<Tokenizer> load_json_tokenizer(const std::string& path);

}  // namespace tessera
