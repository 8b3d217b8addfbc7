// What `tessera generate` writes: text as it comes, or one JSON object at the end.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "launcher/generate_request.h"
#include "runtime/train/text_stream.h"
#include "runtime/train/tokenizer.h"

namespace tessera {

class GenerateOutput {
 public:
  // options and out outlive the object.
  GenerateOutput(const GenerateOptions& options, PreparedGenerate prepared, std::FILE* out);

  // A token that continues prompt n; prompts come one after the other.
  void token(std::size_t prompt, std::uint32_t token);
  void end_of(std::size_t prompt);
  // After the last prompt. DeviceError where something could not be written: not before, since the other ranks go on.
  void finish();

 private:
  void begin(std::size_t prompt);
  void write(const std::string& text);
  void write_json();

  struct Sample {
    std::string text;  // without the prompt
    std::vector<std::uint32_t> tokens;
  };

  const GenerateOptions& options_;
  GenerateRequest request_;
  std::FILE* out_;
  bool failed_ = false;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<TextStream> stream_;  // of the prompt that is being continued
  std::vector<Sample> samples_;
};

}  // namespace tessera
