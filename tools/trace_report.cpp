#include "tools/trace_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/train/run_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> rank_files(const fs::path& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank-") && name.ends_with(".json")) paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  return paths;
}

void add_file(TraceReport& report, const RunDirectory& directory, const std::string& path) {
  try {
    RankTrace trace = read_rank_trace(path);
    if (!report.ranks.empty() && report.ranks.front().header.run != trace.header.run)
      throw DataError(fmt::format("{}: of another run than that of rank {}", path, report.ranks.front().header.rank));
    if (directory.trace(trace.header.rank) != path)
      throw DataError(fmt::format("{}: holds the trace of rank {}", path, trace.header.rank));
    report.ranks.push_back({std::move(trace.header), analyse(trace.spans)});
  } catch (const DataError& error) {
    report.damaged.push_back({path, error.what()});
  }
}

}  // namespace

TraceReport read_trace_report(const std::string& run) {
  if (!fs::is_directory(run))
    throw ConfigError(fmt::format("trace {}: no such run directory", run), "the directory of --run-dir");
  const RunDirectory directory(run);
  std::vector<std::string> paths;
  if (fs::is_directory(directory.trace_folder())) paths = rank_files(directory.trace_folder());
  if (paths.empty())
    throw DataError(fmt::format("trace {}: holds no trace", run), "trace: {steps: [first, last]} in the job");

  TraceReport report;
  for (const std::string& path : paths) add_file(report, directory, path);
  const std::set<std::string> found(paths.begin(), paths.end());
  const int world_size = report.ranks.empty() ? 0 : report.ranks.front().header.world_size;
  for (int rank = 0; rank < world_size; ++rank) {
    if (found.count(directory.trace(rank)) == 0) report.missing.push_back(rank);
  }
  return report;
}

TraceReport select(TraceReport report, const TraceSelection& selection) {
  if (selection.rank >= 0) {
    std::erase_if(report.ranks, [&](const TraceReport::Rank& rank) { return rank.header.rank != selection.rank; });
    if (report.ranks.empty()) throw DataError(fmt::format("trace: rank {} has no readable file", selection.rank));
  }
  if (selection.step < 0) return report;
  bool found = false;
  for (TraceReport::Rank& rank : report.ranks) {
    std::erase_if(rank.steps, [&](const StepTimes& step) { return step.step != selection.step; });
    found = found || !rank.steps.empty();
  }
  if (!found) throw DataError(fmt::format("trace: step {} was not traced", selection.step));
  return report;
}

}  // namespace tessera
