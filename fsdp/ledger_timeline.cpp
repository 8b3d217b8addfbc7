#include "fsdp/ledger_timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace tessera {
namespace {

struct Part {
  std::string name;
  std::size_t last = 0;  // its last instruction
};

// Parts end where a segment has run, and with the program.
std::vector<Part> parts_of(const StepProgram& program) {
  std::vector<Part> parts;
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    const Instruction& i = program.instructions[n];
    const bool last = n + 1 == program.instructions.size();
    if (i.segment < 0 && !last) continue;
    const std::string micro = i.micro_batch >= 0 ? fmt::format("micro {}: ", i.micro_batch) : "";
    parts.push_back({micro + program.text(i), n});
  }
  return parts;
}

}  // namespace

std::vector<TimelineRow> timeline_rows(const StepProgram& program, const Ledger& ledger, int max_rows) {
  require(max_rows >= 1, "a timeline has rows");
  require(ledger.timeline.size() == program.instructions.size(), "a ledger belongs to its program");
  const std::vector<Part> parts = parts_of(program);
  const std::size_t rows = static_cast<std::size_t>(max_rows);
  const std::size_t joined = (parts.size() + rows - 1) / rows;
  std::vector<TimelineRow> out;
  std::size_t instruction = 0;
  for (std::size_t first = 0; first < parts.size(); first += joined) {
    const Part& last = parts[std::min(first + joined, parts.size()) - 1];
    TimelineRow row{.part = parts[first].name};
    if (last.name != row.part) row.part += " … " + last.name;
    for (; instruction <= last.last; ++instruction) {
      row.peak = std::max(row.peak, ledger.timeline[instruction].peak);
      row.is_peak = row.is_peak || static_cast<int>(instruction) == ledger.peak_instruction;
    }
    out.push_back(std::move(row));
  }
  return out;
}

std::string peak_place(const StepProgram& program, const Ledger& ledger) {
  if (ledger.peak_instruction < 0) return "parameters and moments";
  return program.text(program.instructions[static_cast<std::size_t>(ledger.peak_instruction)]);
}

}  // namespace tessera
