// Deliberate faults (`chaos`): what one rank does wrong, when, and who noticed. Every rank has one, since those that do nothing wrong
// report what they find and take part in rehearsal calls.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "models/gpt.h"
#include "parallel/communicator.h"
#include "runtime/base/error.h"
#include "runtime/config/job_config.h"
#include "runtime/program/step_program.h"
#include "runtime/train/chaos_program.h"
#include "runtime/train/fault_markers.h"

namespace tessera {

// What a rank executes in a step, and what it ought to execute.
struct StepPrograms {
  const StepProgram* executed = nullptr;
  const StepProgram* expected = nullptr;
};

// Host thread only, where nothing else is said. A fault leaves its marker before it acts (fault_markers.h); a marker of an earlier start keeps it from acting again.
class Chaos final : public CallFaults {
 public:
  Chaos(const std::vector<ChaosFault>& faults, int world_rank, const std::string& run_directory);

  // Once the job's program is known. ConfigError where a fault asks for what it does not have. `program` outlives this.
  void prepare(const StepProgram& program, const std::vector<std::int64_t>& shard_sizes);
  // Once the run directory is this run's: reads which faults fired before. ConfigError where they were others.
  void open();
  // One line per fault: what this start is going to do.
  std::vector<std::string> announcement() const;

  // From here to end_step() the calls of this rank are those of the step.
  StepPrograms begin_step(std::int64_t step);
  void end_step() { in_step_ = false; }
  CallFault next(std::string_view group, CollectiveOp op, const CollectiveTag& tag) override;
  // The loss of this rank becomes NaN.
  void at_head_loss(LossSum& losses);
  // What happens to the process happens here, in the middle of a step.
  void at_backward();
  void at_teardown();
  // Whether this fault of a save hits this rank in the save of `step`; it is marked as fired. Any thread, after open().
  bool at_save(std::string_view name, std::int64_t step);

  // "chaos: kill of rank 1 at step 5 was found on rank 0 by the time-out after 2001.3 ms": of the newest fault that fired in this start and was not
  // reported yet; "" where there is none. means: how this rank noticed. Any thread, after open().
  std::string report(FoundBy means) { return report(name_of(means)); }
  std::string report(std::string_view means);
  // The same of a flipped bit, which shows in a later start: that the checkpoint of `step` does not load is its doing. "" where no such fault hit it.
  std::string report_damage(std::int64_t step);
  // One line for each fault that nobody found, or that did not come to fire. Ranks must agree that nothing more will fire.
  std::vector<std::string> leftover() const;

 private:
  struct State {
    bool fired_before = false;  // in an earlier start
    bool active = false;        // acts in this step
    bool fired = false;         // by this rank, in this start
  };
  const ChaosFault& fault(std::size_t index) const { return markers_.faults()[index]; }
  std::size_t size() const { return markers_.faults().size(); }
  // The index of a fault of these names that acts now; it is marked as fired. nullopt: none.
  std::optional<std::size_t> take(std::initializer_list<std::string_view> names);
  // Marks it; false where it has fired already.
  bool fire(std::size_t index);
  bool rehearses_broadcast(std::int64_t step) const;
  std::string found(std::size_t index, std::string_view means, std::int64_t fired_ns) const;

  FaultMarkers markers_;
  int world_rank_;
  std::vector<State> states_;
  mutable std::mutex mutex_;    // guards what follows
  std::vector<bool> reported_;  // by this rank
  std::int64_t step_ = 0;
  bool in_step_ = false;
  // Programs of a step with a fault: {without, with} the rehearsal broadcast.
  const StepProgram* program_ = nullptr;
  std::optional<StepProgram> rehearsal_;
  std::optional<SwappedProgram> swapped_, swapped_rehearsal_;
};

}  // namespace tessera
