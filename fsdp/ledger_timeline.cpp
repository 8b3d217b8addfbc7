#include "fsdp/ledger_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "runtime/base/error.h"

namespace tessera {
namespace {

// A run of instructions, from one that runs a segment to the next, or several such runs.
struct Part {
  std::string first, last;  // what begins and what ends it
  std::size_t last_instruction = 0;
  int first_micro_batch = 0, micro_batch = 0;  // … and of which micro-batches those are

  std::string str() const {
    std::string text = fmt::format("micro {}: {}", first_micro_batch, first);
    if (last == first && micro_batch == first_micro_batch) return text;
    return text + (micro_batch == first_micro_batch ? " … " : fmt::format(" … micro {}: ", micro_batch)) + last;
  }
};

// Parts end where a segment has run, and with the program, which counts as its last micro-batch's.
std::vector<Part> parts_of(const StepProgram& program) {
  std::vector<Part> parts;
  int micro_batch = 0;
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    const Instruction& i = program.instructions[n];
    if (i.segment < 0 && n + 1 < program.instructions.size()) continue;
    if (i.segment >= 0) micro_batch = i.micro_batch;
    const std::string name = program.text(i);
    parts.push_back({name, name, n, micro_batch, micro_batch});
  }
  return parts;
}

Part joined(std::span<const Part> parts) {
  Part whole = parts.back();
  whole.first = parts.front().first;
  whole.first_micro_batch = parts.front().first_micro_batch;
  return whole;
}

// Micro-batches before and after this one become one part each.
std::vector<Part> around(int micro_batch, std::span<const Part> parts) {
  const auto begin = std::ranges::find(parts, micro_batch, &Part::micro_batch);
  const auto end = std::find_if(begin, parts.end(), [&](const Part& p) { return p.micro_batch != micro_batch; });
  std::vector<Part> out;
  if (begin != parts.begin()) out.push_back(joined({parts.begin(), begin}));
  out.insert(out.end(), begin, end);
  if (end != parts.end()) out.push_back(joined({end, parts.end()}));
  return out;
}

}  // namespace

std::vector<TimelineRow> timeline_rows(const StepProgram& program, const Ledger& ledger, int max_rows) {
  require(max_rows >= 1, "a timeline has rows");
  require(ledger.timeline.size() == program.instructions.size(), "a ledger belongs to its program");
  std::vector<Part> parts = parts_of(program);
  const auto peak = static_cast<std::size_t>(std::max(0, ledger.peak_instruction));
  const auto at_peak = std::ranges::find_if(parts, [&](const Part& part) { return part.last_instruction >= peak; });
  if (at_peak != parts.end()) parts = around(at_peak->micro_batch, parts);

  const auto most = static_cast<std::size_t>(max_rows);
  const std::size_t per_row = (parts.size() + most - 1) / most;
  std::vector<TimelineRow> rows;
  std::size_t instruction = 0;
  for (std::size_t first = 0; first < parts.size(); first += per_row) {
    const Part part = joined(std::span(parts).subspan(first, std::min(per_row, parts.size() - first)));
    TimelineRow row{.part = part.str()};
    for (; instruction <= part.last_instruction; ++instruction) {
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
