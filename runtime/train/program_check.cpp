#include "runtime/train/program_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/base/exact_sum.h"

namespace tessera {
namespace {

// The words each rank contributes to the agreement at the end of a step: sums first, then one slot per rank.
constexpr std::uint64_t kWordsPerRank = 4;

constexpr const char* kHint = "this rank does not follow its step program (tessera plan prints it)";

CollectiveIdentity all_reduce_of_words(std::string_view what, std::uint64_t words) {
  CollectiveIdentity identity;
  identity.op = CollectiveOp::kAllReduce;
  identity.dtype = DType::kInt64;
  identity.num_elements = words;
  set_name(identity.what, sizeof identity.what, what);
  return identity;
}

CollectiveIdentity rehearsal_broadcast() {
  CollectiveIdentity identity;
  identity.op = CollectiveOp::kBroadcast;
  identity.dtype = DType::kInt64;
  identity.num_elements = 1;
  identity.root = 0;
  set_name(identity.what, sizeof identity.what, "rehearsal");
  return identity;
}

CollectiveIdentity of_unit(const Instruction& i, const ShardedModel& model) {
  const UnitSpec& unit = model.unit_specs().at(static_cast<std::size_t>(i.unit));
  const ShardLayout& layout = model.unit(i.unit).layout();
  CollectiveIdentity identity;
  identity.dtype = DType::kFloat32;
  identity.micro_batch = i.micro_batch;
  set_name(identity.what, sizeof identity.what, unit.name);
  const std::vector<std::uint64_t> lookup = layout.lookup_counts();
  if (i.op == OpCode::kUnshard) {
    identity.op = CollectiveOp::kAllGather;
    identity.num_elements = static_cast<std::uint64_t>(layout.shard_size);
  } else if (i.op == OpCode::kReduceReplicas) {
    const std::uint64_t own_lookup = lookup[static_cast<std::size_t>(model.groups().shard)];
    identity.op = CollectiveOp::kAllReduce;
    identity.num_elements = static_cast<std::uint64_t>(layout.shard_size) + own_lookup;
    if (layout.tied_slot >= 0) identity.layout = extend_layout(0, std::span(&own_lookup, 1));
  } else {
    identity.op = CollectiveOp::kReduceScatter;
    identity.layout = extend_layout(0, layout.shard_counts());
    if (std::any_of(lookup.begin(), lookup.end(), [](std::uint64_t count) { return count > 0; })) {
      identity.layout = extend_layout(identity.layout, lookup);
    }
    identity.num_elements = static_cast<std::uint64_t>(layout.flat_size()) +
                            std::accumulate(lookup.begin(), lookup.end(), std::uint64_t{0});
  }
  return identity;
}

CollectiveIdentity identity_of(const Instruction& i, const ShardedModel& model, int world_size) {
  switch (i.op) {
    case OpCode::kAgreeTokens: return all_reduce_of_words("tokens", 1);
    case OpCode::kAgreeNorm: return all_reduce_of_words("norm", num_norm_words(world_size));
    case OpCode::kAgreeLoss: return all_reduce_of_words("loss", num_loss_words());
    case OpCode::kRehearseBroadcast: return rehearsal_broadcast();
    case OpCode::kUnshard:
    case OpCode::kReduceReplicas:
    case OpCode::kReduce: return of_unit(i, model);
    default: throw InternalError(fmt::format("program check: {} is no collective", name_of(i.op)));
  }
}

}  // namespace

std::uint64_t num_norm_words(int world_size) {
  return 2 * ExactSum::kNumWords + 3 + static_cast<std::uint64_t>(world_size) * kWordsPerRank;
}

std::uint64_t num_loss_words() {
  return ExactSum::kNumWords + 2;
}

std::vector<ExpectedCall> expected_calls(const StepProgram& program, const ShardedModel& model, int world_size) {
  std::vector<ExpectedCall> calls;
  for (const Instruction& i : program.instructions) {
    if (collective_of(i.op).empty()) continue;
    CollectiveIdentity identity = identity_of(i, model, world_size);
    set_name(identity.phase, sizeof identity.phase, i.phase);
    calls.push_back({i.group, std::string(name_of(i.stream)), identity});
  }
  return calls;
}

void ProgramCheck::begin(const StepProgram& program, std::int64_t step) {
  const auto [found, fresh] = programs_.try_emplace(&program);
  if (fresh) found->second = expected_calls(program, model_, world_size_);
  running_ = &found->second;
  next_ = 0;
  step_ = step;
}

void ProgramCheck::end() {
  const std::vector<ExpectedCall>* const calls = running_;
  running_ = nullptr;
  if (calls == nullptr || next_ == calls->size()) return;
  ExpectedCall missing = (*calls)[next_];
  missing.identity.step = step_;
  throw CollectiveError(fmt::format("{}{}/{}: {} was left out", kProgramCheckError, missing.group, missing.channel,
                                    describe(missing.identity)),
                        kHint, FoundBy::kProgramCheck);
}

void ProgramCheck::on_call(const CollectiveCall& call) {
  if (running_ == nullptr) return;
  const auto refuse = [&](const std::string& why) {
    throw CollectiveError(fmt::format("{}{}/{}: {} {}; it was not issued", kProgramCheckError, call.group, call.channel,
                                      describe(call.identity), why),
                          kHint, FoundBy::kProgramCheck);
  };
  if (next_ == running_->size()) refuse("is one call more than the program makes");
  const ExpectedCall& next = (*running_)[next_];
  CollectiveIdentity expected = next.identity;
  expected.step = step_;
  expected.sequence = call.identity.sequence;
  if (next.group != call.group || next.channel != call.channel) {
    refuse(fmt::format("instead of {} on {}/{}", describe(expected), next.group, next.channel));
  }
  if (std::memcmp(&expected, &call.identity, sizeof expected) != 0) {
    const std::vector<std::string> fields = differing_fields(expected, call.identity);
    refuse(fields.empty() ? fmt::format("instead of {}", name_of(expected.op))
                          : fmt::format("instead of {}", fmt::join(fields, ", ")));
  }
  ++next_;
}

}  // namespace tessera
