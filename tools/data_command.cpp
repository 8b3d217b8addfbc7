#include "tools/data_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "tools/data_prepare.h"
#include "tools/data_show.h"

namespace tessera {
namespace {

// 1234567 as "1,234,567".
std::string grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

// The escapes that a shell makes hard to type: \n, \t, \0 and \\.
std::string unescape(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result.push_back(text[i]);
      continue;
    }
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    switch (next) {
      case 'n': result.push_back('\n'); break;
      case 't': result.push_back('\t'); break;
      case '0': result.push_back('\0'); break;
      case '\\': result.push_back('\\'); break;
      default:
        throw ConfigError(
            fmt::format("--separator {}: unknown escape after a backslash; known: \\n \\t \\0 \\\\", text));
    }
    ++i;
  }
  return result;
}

std::string split_line(std::string_view name, const SplitSummary& side) {
  return fmt::format("{:<11} {} document{}, {} bytes, {} tokens, {:.4f} bytes per token: {}\n", name,
                     grouped(side.documents), side.documents == 1 ? "" : "s", grouped(side.bytes), grouped(side.tokens),
                     side.bytes_per_token(),
                     side.files.size() > 2 ? fmt::format("{} … {}", side.files.front(), side.files.back())
                                           : fmt::format("{}", fmt::join(side.files, ", ")));
}

std::string report(const PrepareSummary& summary, double seconds) {
  const bool has_validation = summary.validation.tokens > 0;
  std::string text = fmt::format("{:<11} {}, vocab_size {}\n", "tokenizer", summary.tokenizer, summary.vocab_size);
  text += split_line("train", summary.train);
  if (has_validation) text += split_line("validation", summary.validation);
  const SplitSummary& side = has_validation ? summary.validation : summary.train;
  text += fmt::format("unigram entropy of the {} tokens: {:.4f} nats per token, {:.4f} nats per byte\n",
                      has_validation ? "validation" : "training", side.unigram_entropy_per_token,
                      side.unigram_entropy_per_byte());
  if (summary.invalid_utf8_bytes > 0)
    text += fmt::format("{} bytes are not UTF-8; kept, a token each\n", grouped(summary.invalid_utf8_bytes));
  if (summary.special_tokens_in_text > 0)
    text += fmt::format("{} special tokens are spelled out in the text, and are encoded as such\n",
                        grouped(summary.special_tokens_in_text));
  return text + fmt::format("wrote {} in {:.1f} s\n", summary.output, seconds);
}

void print_data(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void add_prepare(CLI::App& data) {
  struct Arguments {
    PrepareOptions options;
    std::string separator;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  PrepareOptions& options = arguments->options;
  CLI::App* command = data.add_subcommand(
      "prepare",
      "text (.txt, .jsonl, either as .gz) to token files of the llm.c format, with figures to judge a loss by");
  command->footer(
      "tessera data prepare 'books/*.txt' --output data/books --tokenizer train:bpe:8192\n"
      "tessera data prepare wiki.jsonl.gz --output data/wiki --tokenizer my.model --validation-fraction 0.01\n"
      "tessera data prepare stories.txt --split '<|endoftext|>' --output data/stories --tokenizer bytes");
  command->add_option("INPUT", options.inputs, "files or quoted patterns")->required();
  command->add_option("--output", options.output, "folder to make")->required()->option_text("DIR");
  command
      ->add_option("--tokenizer", options.tokenizer,
                   "bytes, a SentencePiece PATH.model, a tokenizer.json, or train:bpe:VOCAB")
      ->required()
      ->option_text("SPEC");
  CLI::Option* fraction = command
                              ->add_option("--validation-fraction", options.validation_fraction,
                                           "part of the text held out, spread evenly (0.05)")
                              ->option_text("F");
  command->add_option("--validation", options.validation, "files to hold out instead")
      ->option_text("FILES")
      ->excludes(fraction);
  command->add_option("--separator", arguments->separator, "text after a document (end-of-text token, or blank line)")
      ->option_text("TEXT");
  command->add_option("--split", options.split_line, "line between documents of a .txt (none: one a file)")
      ->option_text("LINE");
  command->add_option("--text-field", options.text_field, "field of a JSON line that holds the text (text)")
      ->option_text("NAME");
  command->add_option("--shard-tokens", options.shard_tokens, "tokens per training file (100000000)")->option_text("N");
  command->add_option("--tokenizer-bytes", options.tokenizer_bytes, "text to train a tokenizer on (33554432)")
      ->option_text("N");
  command->add_flag("--overwrite", options.overwrite, "replace a folder that this command made");
  command->add_flag("--json", arguments->json, "print the figures as JSON");
  command->callback([command, arguments] {
    PrepareOptions given = arguments->options;
    if (command->count("--separator") > 0) given.separator = unescape(arguments->separator);
    const double start = monotonic_seconds();
    const PrepareSummary summary = prepare_data(given);
    print_data(arguments->json ? to_json(summary) + "\n" : report(summary, monotonic_seconds() - start));
  });
}

void add_show(CLI::App& data) {
  struct Arguments {
    std::string path, tokenizer;
    std::int64_t head = 32;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = data.add_subcommand("show", "format, counts and first tokens of a token file");
  command->footer(
      "tessera data show data/books/validation.bin\ntessera data show tokens.bin --tokenizer my.model --head 200");
  command->add_option("FILE", arguments->path, "a token file")->required();
  command
      ->add_option("--tokenizer", arguments->tokenizer,
                   "bytes, PATH.model or PATH.json (what data prepare left beside FILE)")
      ->option_text("SPEC");
  command->add_option("--head", arguments->head, "tokens to show (32)")->option_text("N");
  command->add_flag("--json", arguments->json, "print as JSON");
  command->callback([arguments] {
    if (arguments->head < 0) throw ConfigError(fmt::format("--head {}, expected at least 0", arguments->head));
    const TokenFileSummary summary = summarize_token_file(arguments->path, arguments->tokenizer, arguments->head);
    print_data(arguments->json ? to_json(summary) + "\n" : to_text(summary));
  });
}

}  // namespace

void add_data_commands(CLI::App& app, int& /*exit_code: failures are exceptions*/) {
  CLI::App* data = app.add_subcommand("data", "text to token files; look inside one");
  data->footer(
      "tessera data prepare 'books/*.txt' --output data/books --tokenizer train:bpe:8192\ntessera data show "
      "data/books/validation.bin");
  data->require_subcommand(1);
  add_prepare(*data);
  add_show(*data);
}

}  // namespace tessera
