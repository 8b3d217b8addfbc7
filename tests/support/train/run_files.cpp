#include "tests/support/train/run_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/support/train/train_job.h"

namespace tessera::test {

namespace fs = std::filesystem;

std::vector<std::string> steps_of(const std::string& run_directory) {
  std::vector<std::string> lines;
  std::ifstream file(run_directory + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);)
    if (!nlohmann::json::parse(line).contains("kind")) lines.push_back(line);
  return promised_numbers(lines);
}

std::vector<std::string> checkpoints_of(const std::string& run_directory) {
  std::vector<std::string> names;
  if (!fs::exists(run_directory + "/checkpoints")) return names;
  for (const auto& entry : fs::directory_iterator(run_directory + "/checkpoints"))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

std::string logs_of(const std::string& run_directory) {
  std::string text;
  for (const auto& entry : fs::directory_iterator(run_directory + "/logs")) {
    std::ifstream log(entry.path());
    text.append(std::istreambuf_iterator<char>(log), {});
  }
  return text;
}

}  // namespace tessera::test
