#include "runtime/train/huggingface_tokenizer.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include "checkpoint/streamed_file.h"

namespace tessera {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
constexpr std::array<std::string_view, 7> kNames = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
    "merges.txt",     "tokenizer.model",       "generation_config.json"};

}  // namespace

std::vector<std::string> tokenizer_files_in(FileSystem& files, const std::string& folder) {
  std::vector<std::string> found;
  for (const std::string_view name : kNames)
    if (files.exists(folder + "/" + std::string(name))) found.emplace_back(name);
  return found;
}

void copy_file(FileSystem& files, const std::string& from, const std::string& to) {
  const auto source = files.open(from);
  StreamedFile target(files, to, source->size());
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(source->size(), kPieceBytes)));
  for (std::uint64_t offset = 0; offset < source->size(); offset += kPieceBytes) {
    const auto part = std::span(piece).first(std::min(kPieceBytes, source->size() - offset));
    source->read_at(offset, part);
    target.append(part);
  }
  target.finish();
}

std::vector<FileToCopy> tokenizer_files_of_run(FileSystem& files, const std::string& run_directory,
                                               const std::string& job_tokenizer) {
  std::vector<FileToCopy> found;
  const auto add_all = [&](const std::string& folder) {
    for (const std::string& name : tokenizer_files_in(files, folder)) found.push_back({folder + "/" + name, name});
  };
  if (const std::string folder = run_directory + "/tokenizer"; files.exists(folder)) {
    add_all(folder);
    return found;
  }
  if (job_tokenizer.empty() || job_tokenizer == "bytes") return found;
  std::string path = job_tokenizer;
  if (!files.exists(path)) path = run_directory + "/" + job_tokenizer;
  if (!files.exists(path)) return found;
  const std::string name = std::filesystem::path(path).filename().string();
  if (std::ranges::find(kNames, name) != kNames.end())
    add_all(parent_directory(path));
  else
    found.push_back({path, path.ends_with(".json") ? "tokenizer.json" : "tokenizer.model"});
  return found;
}

}  // namespace tessera
