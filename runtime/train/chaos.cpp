#include "runtime/train/chaos.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <thread>

#include "runtime/base/log.h"
#include "runtime/config/chaos_faults.h"

namespace tessera {
namespace {

void sleep(std::optional<double> seconds) {
  while (!seconds) std::this_thread::sleep_for(std::chrono::hours(1));
  std::this_thread::sleep_for(std::chrono::duration<double>(*seconds));
}

CallFault call_fault(std::string_view name) {
  if (name == "skip_collective") return CallFault::kSkip;
  if (name == "extra_collective") return CallFault::kExtra;
  if (name == "wrong_dtype") return CallFault::kWrongDType;
  if (name == "wrong_count") return CallFault::kWrongCount;
  if (name == "wrong_reduce_op") return CallFault::kWrongReduceOp;
  if (name == "wrong_root") return CallFault::kWrongRoot;
  return CallFault::kNone;
}

// Asks for a broadcast, which no step has.
bool wants_broadcast(const ChaosFault& fault) {
  return fault.fault == "wrong_root" || fault.op == "broadcast";
}

bool fits(const ChaosFault& fault, CollectiveOp op) {
  if (!fault.op.empty()) return fault.op == name_of(op);
  return config::takes_op(config::fault_kind(fault.fault), name_of(op));
}

}  // namespace

Chaos::Chaos(const std::vector<ChaosFault>& faults, int world_rank, const std::string& run_directory)
    : markers_(faults, run_directory), world_rank_(world_rank), states_(faults.size()), reported_(faults.size()) {}

void Chaos::prepare(const StepProgram& program, const std::vector<std::int64_t>& shard_sizes) {
  program_ = &program;
  rehearsal_ = add_rehearsal_broadcast(program);
  const auto& faults = markers_.faults();
  if (std::ranges::none_of(faults, [](const ChaosFault& f) { return f.fault == "swap_collectives"; })) return;
  swapped_ = require_swap(program, shard_sizes);
  swapped_rehearsal_ = require_swap(*rehearsal_, shard_sizes);
}

void Chaos::open() {
  for (std::size_t k = 0; k < size(); ++k) states_[k].fired_before = markers_.fired_at(k).has_value();
}

std::vector<std::string> Chaos::announcement() const {
  std::vector<std::string> lines;
  for (std::size_t k = 0; k < size(); ++k) {
    lines.push_back(fmt::format("chaos    {}{}", describe(fault(k)),
                                states_[k].fired_before ? ": fired in an earlier start, not again" : ""));
  }
  return lines;
}

bool Chaos::rehearses_broadcast(std::int64_t step) const {
  const auto& faults = markers_.faults();
  return std::any_of(faults.begin(), faults.end(),
                     [&](const ChaosFault& f) { return f.step == step && wants_broadcast(f); });
}

StepPrograms Chaos::begin_step(std::int64_t step) {
  step_ = step;
  in_step_ = true;
  bool swaps = false;
  for (std::size_t k = 0; k < size(); ++k) {
    const bool now = fault(k).fault == "slow" ? step >= fault(k).step : step == fault(k).step;
    const bool again = states_[k].fired && fault(k).fault != "slow";  // the step of a skipped update comes again
    states_[k].active = now && fault(k).rank == world_rank_ && !states_[k].fired_before && !again;
    swaps = swaps || (states_[k].active && fault(k).fault == "swap_collectives");
  }
  const bool rehearses = rehearses_broadcast(step);
  const StepProgram* expected = rehearses ? &*rehearsal_ : program_;
  if (!swaps) return {expected, expected};
  return {rehearses ? &swapped_rehearsal_->program : &swapped_->program, expected};
}

bool Chaos::fire(std::size_t index) {
  states_[index].active = false;
  if (states_[index].fired) return true;  // slow, in its later steps
  if (!markers_.fire(index)) return false;
  states_[index].fired = true;
  log::info(fmt::format("chaos: {} now", describe(fault(index))));
  log::flush();  // what comes next may be the end
  return true;
}

std::optional<std::size_t> Chaos::take(std::initializer_list<std::string_view> names) {
  if (!in_step_) return std::nullopt;
  for (std::size_t k = 0; k < size(); ++k) {
    if (!states_[k].active || std::find(names.begin(), names.end(), fault(k).fault) == names.end()) continue;
    if (fire(k)) return k;
  }
  return std::nullopt;
}

CallFault Chaos::next(std::string_view /*group*/, CollectiveOp op, const CollectiveTag& tag) {
  if (!in_step_) return CallFault::kNone;
  for (std::size_t k = 0; k < size(); ++k) {
    if (!states_[k].active) continue;
    if (fault(k).fault == "swap_collectives") {
      // The program is wrong already; here comes its first wrong call.
      const std::string& early = program_->unit_names[static_cast<std::size_t>(swapped_->unit)];
      if (op == CollectiveOp::kAllGather && tag.what == early) fire(k);
      continue;
    }
    const CallFault wrong = call_fault(fault(k).fault);
    if (wrong != CallFault::kNone && fits(fault(k), op) && fire(k)) return wrong;
  }
  return CallFault::kNone;
}

void Chaos::at_head_loss(LossSum& losses) {
  if (!take({"nan_loss"})) return;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  losses.sum.add(&nan, 1);
  losses.max_loss = nan;
}

void Chaos::at_backward() {
  while (const auto taken = take({"slow", "hang", "throw", "exit", "kill", "stop"})) {
    const ChaosFault& now = fault(*taken);
    if (now.fault == "throw") throw InternalError(fmt::format("chaos: thrown in backward of step {}", step_));
    if (now.fault == "exit") std::_Exit(0);
    if (now.fault == "kill") ::kill(::getpid(), SIGKILL);
    if (now.fault == "stop") ::kill(::getpid(), SIGSTOP);
    if (now.fault == "slow" || now.fault == "hang") sleep(now.seconds);
  }
}

void Chaos::at_teardown() {
  for (std::size_t k = 0; k < size(); ++k) {
    const bool reached = fault(k).fault == "slow_teardown" && fault(k).rank == world_rank_ && step_ >= fault(k).step;
    if (reached && !states_[k].fired_before && fire(k)) sleep(fault(k).seconds);
  }
}

bool Chaos::at_save(std::string_view name, std::int64_t step) {
  for (std::size_t k = 0; k < size(); ++k) {
    const ChaosFault& now = fault(k);
    if (now.fault != name || now.rank != world_rank_ || now.step != step || states_[k].fired_before) continue;
    if (!markers_.fire(k)) continue;
    log::info(fmt::format("chaos: {} now", describe(now)));
    log::flush();
    return true;
  }
  return false;
}

std::string Chaos::found(std::size_t index, std::string_view means, std::int64_t fired_ns) const {
  return fmt::format("chaos: {} was found on rank {} by {} after {:.1f} ms", describe(fault(index)), world_rank_, means,
                     static_cast<double>(unix_ns() - fired_ns) * 1e-6);
}

std::string Chaos::report_damage(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  for (std::size_t k = 0; k < size(); ++k) {
    if (fault(k).fault != "flip_bit" || fault(k).step != step || reported_[k]) continue;
    const auto at = markers_.fired_at(k);
    if (!at) continue;
    reported_[k] = true;
    return found(k, "the resume", *at);
  }
  return "";
}

std::string Chaos::report(std::string_view means) {
  const std::lock_guard lock(mutex_);
  std::optional<std::size_t> newest;
  std::int64_t newest_ns = 0;
  for (std::size_t k = 0; k < size(); ++k) {
    if (states_[k].fired_before || reported_[k] || fault(k).fault == "flip_bit") continue;
    const auto at = markers_.fired_at(k);
    if (!at || (newest && *at < newest_ns)) continue;
    newest = k;
    newest_ns = *at;
  }
  if (!newest) return "";
  reported_[*newest] = true;
  return found(*newest, means, newest_ns);
}

std::vector<std::string> Chaos::leftover() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  for (std::size_t k = 0; k < size(); ++k) {
    if (states_[k].fired_before || reported_[k] || fault(k).fault == "slow_teardown") continue;
    const bool fired = markers_.fired_at(k).has_value();
    const char* end = !fired ? "did not come to fire"
                      : fault(k).fault == "flip_bit"
                          ? "fired; tessera checkpoint verify finds it, and a resume from there"
                          : "fired, and nobody found it";
    lines.push_back(fmt::format("chaos: {} {}", describe(fault(k)), end));
  }
  return lines;
}

}  // namespace tessera
