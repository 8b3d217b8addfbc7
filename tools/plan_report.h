// What `tessera plan` prints about one rank's plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/simulate.h"
#include "runtime/train/plan.h"
#include "runtime/train/plan_proof.h"

namespace tessera {

// A simulated step, and of which device.
struct SimulatedCase {
  std::string name;  // "host runs ahead, limit 2"
  DeviceModel device;
  Simulation result;
};
// The step on a device whose host runs ahead, with the job's limit of all_gathers and without, and on one whose host computes, as the CPU's does.
std::vector<SimulatedCase> simulate_cases(const Plan& plan, const DeviceModel& rates);

struct PlanReport {
  const Plan& plan;
  ProofResult training, evaluation;      // of the plan's programs
  FaultyStep faulty;                     // what chaos makes of them
  std::int64_t memory_limit = 0;         // bytes of a rank; 0: none
  std::string fix;                       // what would fit it, where the plan does not
  std::vector<SimulatedCase> simulated;  // may be empty
  bool with_program = false;             // the step program itself (text; JSON always has it)
};
// Whether all programs match and end, those that chaos changed included.
bool is_proven(const PlanReport& report);
std::string plan_report_text(const PlanReport& report);
std::string plan_report_json(const PlanReport& report);

}  // namespace tessera
