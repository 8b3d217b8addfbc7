// Compares every call of this rank with the next call that its step program makes on that communicator, and refuses a
// wrong one before it is issued: locally, without waiting for anybody.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/sharded_model.h"
#include "parallel/communicator.h"
#include "runtime/program/step_program.h"

namespace tessera {

// One call that a program makes, and on which communicator. `step` is filled in when the program runs.
struct ExpectedCall {
  std::string group, channel;
  CollectiveIdentity identity;
};
// The calls of a program in the order of its instructions. world_size: ranks in the world, which the agreements depend on.
std::vector<ExpectedCall> expected_calls(const StepProgram& program, const ShardedModel& model, int world_size);

// 64-bit words of the agreements (executor.cpp fills them).
std::uint64_t num_norm_words(int world_size);
std::uint64_t num_loss_words();

// How its errors begin: for those who read them in a collective log.
inline constexpr std::string_view kProgramCheckError = "program check on ";

// Host thread only. Calls made while no program runs (agreements of the start, hashes) are not looked at.
class ProgramCheck {
 public:
  ProgramCheck(const ShardedModel& model, int world_size) : model_(model), world_size_(world_size) {}

  // From here to end() every call must be the next of the program. The program must stay where it is.
  void begin(const StepProgram& program, std::int64_t step);
  // CollectiveError where the program makes calls that were not made.
  void end();
  // CollectiveError naming both calls where this is not the next one.
  void on_call(const CollectiveCall& call);

 private:
  const ShardedModel& model_;
  int world_size_;
  std::map<const StepProgram*, std::vector<ExpectedCall>> programs_;
  // One thread makes all calls of a program, so they come in its order, whatever their communicators.
  const std::vector<ExpectedCall>* running_ = nullptr;
  std::size_t next_ = 0;
  std::int64_t step_ = 0;
};

// What the communicators see before there is a model to check against: passes calls on to the check, once there is one.
class ProgramObserver final : public CollectiveObserver {
 public:
  void set_check(ProgramCheck* check) { check_ = check; }
  void on_call(const CollectiveCall& call) override {
    if (check_ != nullptr) check_->on_call(call);
  }

 private:
  ProgramCheck* check_ = nullptr;
};

}  // namespace tessera
