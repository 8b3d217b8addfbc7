#include "tools/data_prepare.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/train/atomic_file.h"
#include "runtime/train/file_glob.h"
#include "runtime/train/foreign_format.h"
#include "runtime/train/text_reader.h"
#include "runtime/train/token_writer.h"
#include "runtime/train/tokenizer.h"
#include "tools/output_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTrainPrefix = "train:bpe:";

// Takes a fixed fraction of a stream of pieces, spread evenly: a function of the sizes alone.
class EvenShare {
 public:
  explicit EvenShare(double fraction) : fraction_(fraction) {}
  bool takes(std::size_t bytes) {
    const auto size = static_cast<double>(bytes);
    seen_ += size;
    const bool taken = fraction_ >= 1 || taken_ + size / 2 <= fraction_ * seen_;
    if (taken) taken_ += size;
    return taken;
  }

 private:
  double fraction_, seen_ = 0, taken_ = 0;
};

// The files of the patterns; `seen` holds every file so far, whatever its name.
std::vector<std::string> expand_all(const std::vector<std::string>& patterns,
                                    std::map<std::pair<dev_t, ino_t>, std::string>& seen) {
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns) {
    for (std::string& path : expand_files(pattern)) {
      struct stat info {};
      if (::stat(path.c_str(), &info) != 0)
        throw DataError(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
      const auto [other, is_new] = seen.emplace(std::make_pair(info.st_dev, info.st_ino), path);
      if (!is_new)
        throw DataError(
            fmt::format("{}: named twice ({}), among inputs or as input and validation", path, other->second));
      paths.push_back(std::move(path));
    }
  }
  return paths;
}

// Token shards of one split, and what there is to say of them.
class SplitWriter {
 public:
  SplitWriter(const OutputFolder& folder, std::int64_t vocab_size, std::int64_t shard_tokens, bool one_file)
      : folder_(folder),
        vocab_size_(vocab_size),
        shard_tokens_(shard_tokens),
        one_file_(one_file),
        counts_(static_cast<std::size_t>(vocab_size), 0) {}

  void append(std::span<const std::uint32_t> tokens) {
    while (!tokens.empty()) {
      if (!writer_) open();
      const std::int64_t room =
          one_file_ ? static_cast<std::int64_t>(tokens.size()) : shard_tokens_ - writer_->num_tokens();
      const auto part = tokens.first(std::min<std::size_t>(tokens.size(), static_cast<std::size_t>(room)));
      writer_->append(part);
      for (const std::uint32_t token : part) ++counts_[token];
      summary_.tokens += static_cast<std::int64_t>(part.size());
      tokens = tokens.subspan(part.size());
      if (!one_file_ && writer_->num_tokens() == shard_tokens_) close();
    }
  }
  void count_text(std::size_t bytes) { summary_.bytes += static_cast<std::int64_t>(bytes); }
  void count_document() { ++summary_.documents; }

  SplitSummary finish() {
    close();
    const auto total = static_cast<double>(summary_.tokens);
    for (const std::int64_t count : counts_) {
      if (count == 0) continue;
      const double p = static_cast<double>(count) / total;
      summary_.unigram_entropy_per_token -= p * std::log(p);
    }
    return summary_;
  }

 private:
  void open() {
    const std::string name =
        one_file_ ? std::string(kValidationName) : fmt::format("train-{:05}.bin", summary_.files.size());
    summary_.files.push_back(name);
    writer_ = std::make_unique<TokenFileWriter>(folder_.file(name).string(), vocab_size_);
  }
  void close() {
    if (writer_) writer_->finish();
    writer_.reset();
  }

  const OutputFolder& folder_;
  std::int64_t vocab_size_, shard_tokens_;
  bool one_file_;
  std::vector<std::int64_t> counts_;
  std::unique_ptr<TokenFileWriter> writer_;
  SplitSummary summary_;
};

// The text of a job: sections in order, each for one side of the split. Two passes over it agree.
class SplitText {
 public:
  SplitText(const PrepareOptions& options, const std::vector<std::string>& inputs,
            const std::vector<std::string>& validation)
      : inputs_(inputs), validation_(validation), share_(validation.empty() ? options.validation_fraction : 0) {
    reader_options_.text_field = options.text_field;
    reader_options_.split_line = options.split_line;
    if (share_ > 0) {
      // Small texts are split finely enough that the validation side has about eight sections.
      const double section = share_ * static_cast<double>(estimate_text_bytes(inputs)) / 8;
      reader_options_.section_bytes = static_cast<std::size_t>(std::clamp(section, 1024.0, 65536.0));
    }
  }

  // visit(section, for_validation) for every section.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    TextSection section;
    EvenShare share(share_);
    for (TextReader reader(inputs_, reader_options_); reader.next(section);) {
      visit(section, share_ > 0 && !section.text.empty() && share.takes(section.text.size()));
    }
    for (TextReader reader(validation_, reader_options_); reader.next(section);) visit(section, true);
  }

  // The training side alone, thinned to `fraction`, one text a call of the returned function.
  std::function<bool(std::string&)> training_texts(double fraction) const {
    struct Pass {
      TextReader reader;
      EvenShare validation, thinning;
      TextSection section;
    };
    auto pass = std::shared_ptr<Pass>(new Pass{{inputs_, reader_options_}, EvenShare(share_), EvenShare(fraction), {}});
    return [pass, validates = share_ > 0](std::string& text) {
      while (pass->reader.next(pass->section)) {
        const std::size_t size = pass->section.text.size();
        if (size == 0 || (validates && pass->validation.takes(size)) || !pass->thinning.takes(size)) continue;
        text = pass->section.text;
        return true;
      }
      return false;
    };
  }

 private:
  const std::vector<std::string>&inputs_, &validation_;
  double share_;
  TextReaderOptions reader_options_;
};

std::int64_t parse_vocab_size(const std::string& spec) {
  const std::string digits = spec.substr(kTrainPrefix.size());
  if (digits.empty() || digits.size() > 7 || digits.find_first_not_of("0123456789") != std::string::npos ||
      digits[0] == '0') {
    throw ConfigError(fmt::format("--tokenizer {}: expected {}N with N pieces, 260 to 1000000", spec, kTrainPrefix),
                      "train:bpe:8192");
  }
  return std::stoll(digits);
}

// What the tokenizer is called beside its tokens; "bytes" needs no file.
std::string tokenizer_name(const std::string& spec) {
  if (spec == "bytes") return spec;
  return std::string(fs::path(spec).extension() == ".json" ? kJsonTokenizerName : kTokenizerName);
}

std::unique_ptr<Tokenizer> make_tokenizer(const PrepareOptions& options, const SplitText& text,
                                          std::uint64_t text_bytes, const OutputFolder& folder) {
  if (options.tokenizer == "bytes") return load_tokenizer("bytes");
  const std::string model = folder.file(kTokenizerName).string();
  if (options.tokenizer.starts_with(kTrainPrefix)) {
    const double fraction =
        static_cast<double>(options.tokenizer_bytes) / static_cast<double>(std::max<std::uint64_t>(text_bytes, 1));
    train_sentencepiece_bpe(text.training_texts(fraction), parse_vocab_size(options.tokenizer), model);
    return load_tokenizer(model);
  }
  auto tokenizer = load_tokenizer(options.tokenizer);
  const std::vector<std::string> files = tokenizer->files();
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::ifstream in(files[i], std::ios::binary);
    const std::string name = i == 0 ? tokenizer_name(options.tokenizer) : fs::path(files[i]).filename().string();
    AtomicFile copy(folder.file(name).string());
    copy.append(std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()));
    copy.commit();
  }
  return tokenizer;
}

std::vector<std::uint32_t> separator_tokens(const PrepareOptions& options, const Tokenizer& tokenizer) {
  if (options.separator) return tokenizer.encode(*options.separator);
  if (const auto end = tokenizer.end_of_text()) return {*end};
  return tokenizer.encode("\n\n");
}

void check(const PrepareOptions& options) {
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1)) {
    throw ConfigError(
        fmt::format("--validation-fraction {}, expected at least 0 and below 1", options.validation_fraction));
  }
  constexpr std::int64_t most_tokens = 2147483647;  // of an llm.c file
  if (options.shard_tokens < 1 || options.shard_tokens > most_tokens) {
    throw ConfigError(fmt::format("--shard-tokens {}, expected 1 to {}", options.shard_tokens, most_tokens));
  }
  if (options.tokenizer_bytes < 1)
    throw ConfigError(fmt::format("--tokenizer-bytes {}, expected at least 1", options.tokenizer_bytes));
  if (options.tokenizer.starts_with(kTrainPrefix)) parse_vocab_size(options.tokenizer);
}

std::int64_t count_invalid_utf8(std::string_view text) {
  std::int64_t invalid = 0;
  for (;;) {
    text.remove_prefix(utf8_prefix(text));
    if (text.empty()) return invalid;
    ++invalid;
    text.remove_prefix(1);
  }
}

}  // namespace

PrepareSummary prepare_data(const PrepareOptions& options) {
  check(options);
  std::map<std::pair<dev_t, ino_t>, std::string> seen;
  const std::vector<std::string> inputs = expand_all(options.inputs, seen);
  const std::vector<std::string> validation = expand_all(options.validation, seen);
  const SplitText text(options, inputs, validation);
  OutputFolder folder(options.output, options.overwrite);
  const auto tokenizer = make_tokenizer(options, text, estimate_text_bytes(inputs), folder);
  const std::vector<std::uint32_t> separator = separator_tokens(options, *tokenizer);
  const std::vector<std::uint32_t> prefix = tokenizer->text_prefix();  // of each document

  PrepareSummary summary;
  summary.output = options.output;
  const std::string name = tokenizer_name(options.tokenizer);
  summary.tokenizer = name == "bytes" ? name : (fs::path(options.output) / name).string();
  summary.vocab_size = tokenizer->vocab_size();
  SplitWriter train(folder, summary.vocab_size, options.shard_tokens, false);
  SplitWriter held_out(folder, summary.vocab_size, options.shard_tokens, true);

  SplitWriter* open_document =
      nullptr;  // the side that holds a document's last section, until it is closed by a separator
  const auto close_document = [&] {
    if (open_document == nullptr) return;
    open_document->append(separator);
    open_document->count_document();
    open_document = nullptr;
  };
  text.for_each([&](const TextSection& section, bool for_validation) {
    SplitWriter& side = for_validation ? held_out : train;
    // Sections of one document on different sides are documents of their own: nothing continues across the gap.
    if (!section.text.empty() && open_document != &side) close_document();
    if (!section.text.empty()) {
      const std::vector<std::uint32_t> tokens = tokenizer->encode(section.text);
      if (tokenizer->is_exact() && tokenizer->decode(tokens) != section.text) {
        throw InternalError(
            fmt::format("{}: tokens of {} bytes do not give the text back", tokenizer->name(), section.text.size()));
      }
      summary.invalid_utf8_bytes += count_invalid_utf8(section.text);
      summary.special_tokens_in_text +=
          std::ranges::count_if(tokens, [&](std::uint32_t token) { return tokenizer->is_special(token); });
      if (open_document == nullptr) side.append(prefix);
      side.append(tokens);
      side.count_text(section.text.size());
      open_document = &side;
    }
    if (section.ends_document) close_document();
  });

  summary.train = train.finish();
  summary.validation = held_out.finish();
  const std::string all = fmt::format("{} file{}", inputs.size(), inputs.size() == 1 ? "" : "s");
  if (summary.train.bytes == 0)
    throw DataError(fmt::format("{}: no text to train on in {}", options.inputs.front(), all));
  if (summary.validation.bytes == 0 && (options.validation_fraction > 0 || !validation.empty())) {
    throw DataError(fmt::format("{}: the validation side is empty: fraction {} of {} bytes in {}",
                                options.inputs.front(), options.validation_fraction, summary.train.bytes, all),
                    "--validation FILES, a larger --validation-fraction, or 0 for none");
  }
  AtomicFile file(folder.file(kSummaryName).string());
  file.append(to_json(summary) + "\n");
  file.commit();
  folder.commit();
  return summary;
}

std::string to_json(const PrepareSummary& summary) {
  const auto split = [](const SplitSummary& side) {
    return nlohmann::ordered_json{{"files", side.files},
                                  {"documents", side.documents},
                                  {"bytes", side.bytes},
                                  {"tokens", side.tokens},
                                  {"bytes_per_token", side.bytes_per_token()},
                                  {"unigram_entropy_per_token", side.unigram_entropy_per_token},
                                  {"unigram_entropy_per_byte", side.unigram_entropy_per_byte()}};
  };
  return nlohmann::ordered_json{{"format", 1},
                                {"tokenizer", fs::path(summary.tokenizer).filename().string()},
                                {"vocab_size", summary.vocab_size},
                                {"invalid_utf8_bytes", summary.invalid_utf8_bytes},
                                {"special_tokens_in_text", summary.special_tokens_in_text},
                                {"train", split(summary.train)},
                                {"validation", split(summary.validation)}}
      .dump(2);
}

}  // namespace tessera
