#include "fsdp/ledger_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "runtime/base/error.h"

namespace tessera {
namespace {

// A run of instructions, up to `last`, from one that runs a segment to the next.
struct Part {
  std::string first_name, last_name;
  std::size_t last = 0;
  int micro_batch = -1;
};

// Parts end where a segment has run, and with the program.
std::vector<Part> parts_of(const StepProgram& program) {
  std::vector<Part> parts;
  int micro_batch = 0;
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    const Instruction& i = program.instructions[n];
    if (i.segment < 0 && n + 1 < program.instructions.size()) continue;
    if (i.micro_batch >= 0) micro_batch = i.micro_batch;
    const std::string micro = i.micro_batch >= 0 ? fmt::format("micro {}: ", i.micro_batch) : "";
    const std::string name = micro + program.text(i);
    parts.push_back({name, name, n, micro_batch});
  }
  return parts;
}

void append_joined(std::vector<Part>& out, std::span<const Part> parts) {
  if (parts.empty()) return;
  Part joined = parts.back();
  joined.first_name = parts.front().first_name;
  out.push_back(std::move(joined));
}

// Micro-batches before and after this one become one part each.
std::vector<Part> around(int micro_batch, std::span<const Part> parts) {
  const auto begin = std::ranges::find(parts, micro_batch, &Part::micro_batch);
  const auto end = std::find_if(begin, parts.end(), [&](const Part& p) { return p.micro_batch != micro_batch; });
  std::vector<Part> out;
  append_joined(out, {parts.begin(), begin});
  out.insert(out.end(), begin, end);
  append_joined(out, {end, parts.end()});
  return out;
}

}  // namespace

std::vector<TimelineRow> timeline_rows(const StepProgram& program, const Ledger& ledger, int max_rows) {
  require(max_rows >= 1, "a timeline has rows");
  require(ledger.timeline.size() == program.instructions.size(), "a ledger belongs to its program");
  std::vector<Part> parts = parts_of(program);
  const auto peak = static_cast<std::size_t>(std::max(0, ledger.peak_instruction));
  const auto at_peak = std::ranges::find_if(parts, [&](const Part& part) { return part.last >= peak; });
  if (at_peak != parts.end()) parts = around(at_peak->micro_batch, parts);

  const std::size_t joined =
      (parts.size() + static_cast<std::size_t>(max_rows) - 1) / static_cast<std::size_t>(max_rows);
  std::vector<TimelineRow> rows;
  std::size_t instruction = 0;
  for (std::size_t first = 0; first < parts.size(); first += joined) {
    const Part& last = parts[std::min(first + joined, parts.size()) - 1];
    TimelineRow row{.part = parts[first].first_name};
    if (last.last_name != row.part) row.part += " … " + last.last_name;
    for (; instruction <= last.last; ++instruction) {
      row.peak = std::max(row.peak, ledger.timeline[instruction].peak);
      row.is_peak = row.is_peak || static_cast<int>(instruction) == ledger.peak_instruction;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string peak_place(const StepProgram& program, const Ledger& ledger) {
  if (ledger.peak_instruction < 0) return "parameters and moments";
  return program.text(program.instructions[static_cast<std::size_t>(ledger.peak_instruction)]);
}

}  // namespace tessera
