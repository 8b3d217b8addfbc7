#include "launcher/generate_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace tessera {

GenerateOutput::GenerateOutput(const GenerateOptions& options, PreparedGenerate prepared, std::FILE* out)
    : options_(options), request_(std::move(prepared.request)), out_(out), tokenizer_(std::move(prepared.tokenizer)) {}

void GenerateOutput::write(const std::string& text) {
  if (text.empty() || failed_) return;
  failed_ = std::fwrite(text.data(), 1, text.size(), out_) != text.size() || std::fflush(out_) != 0;
}

void GenerateOutput::begin(std::size_t prompt) {
  samples_.emplace_back();
  stream_ = std::make_unique<TextStream>(*tokenizer_, request_.prompt_tokens[prompt]);
  if (options_.json) return;
  const std::size_t count = request_.prompts.size();
  if (count > 1) write(fmt::format("{}--- {} of {} ---\n", prompt > 0 ? "\n" : "", prompt + 1, count));
  write(well_formed(request_.prompts[prompt]));
}

void GenerateOutput::token(std::size_t prompt, std::uint32_t token) {
  if (samples_.size() == prompt) begin(prompt);
  samples_[prompt].tokens.push_back(token);
  const std::string text = stream_->push(token);
  samples_[prompt].text += text;
  if (!options_.json) write(text);
}

void GenerateOutput::end_of(std::size_t prompt) {
  const std::string text = stream_->finish();
  samples_[prompt].text += text;
  if (!options_.json) write(text + "\n");
}

void GenerateOutput::finish() {
  if (options_.json) write_json();
  if (failed_) throw DeviceError("stdout: not all of the output could be written");
}

void GenerateOutput::write_json() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    const std::vector<std::uint32_t>& tokens = samples_[i].tokens;
    const bool stopped = std::ranges::find(request_.stop_tokens, tokens.back()) != request_.stop_tokens.end();
    list.push_back({{"prompt", request_.prompts[i]},
                    {"prompt_tokens", request_.prompt_tokens[i]},
                    {"text", samples_[i].text},
                    {"tokens", tokens},
                    {"ended_by", stopped ? "end_of_text" : "max_tokens"}});
  }
  const SamplingOptions& sampling = options_.sampling;
  const nlohmann::ordered_json object{
      {"checkpoint", request_.folder},     {"tokenizer", request_.tokenizer}, {"temperature", sampling.temperature},
      {"top_k", sampling.top_k},           {"top_p", sampling.top_p},         {"seed", sampling.seed},
      {"max_tokens", options_.max_tokens}, {"samples", std::move(list)}};
  // A prompt may hold bytes that are no UTF-8.
  write(object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace tessera
