#include "runtime/train/plan_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "fsdp/shard_layout.h"
#include "runtime/train/chaos_program.h"

namespace tessera {
namespace {

std::string axis_of(const std::string& group) {
  return group.substr(0, group.find(':'));
}

std::vector<ProofGroup> proof_groups(const MeshShape& mesh) {
  std::vector<ProofGroup> groups;
  for (Group& group : canonical_groups(mesh)) groups.push_back({group.name(), std::move(group.members)});
  return groups;
}

// The program as another rank runs it: on that rank's groups.
StepProgram on_groups_of(StepProgram program, const std::vector<ProofGroup>& groups, int rank) {
  std::map<std::string, std::string> own;  // by axis
  for (const ProofGroup& group : groups) {
    if (std::ranges::binary_search(group.members, rank)) own[axis_of(group.name)] = group.name;
  }
  for (Instruction& i : program.instructions) {
    if (!i.group.empty()) i.group = own.at(axis_of(i.group));
  }
  return program;
}

std::vector<int> ranks_without(const MeshShape& mesh, const std::vector<int>& others) {
  std::vector<int> ranks(static_cast<std::size_t>(mesh.num_ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::erase_if(ranks, [&](int rank) { return std::ranges::find(others, rank) != others.end(); });
  return ranks;
}

bool shows_in_the_list(const ChaosFault& fault) {
  return fault.fault == "swap_collectives" || fault.fault == "skip_collective";
}

StepProgram with_fault(const Plan& plan, const StepProgram& program, const ChaosFault& fault) {
  if (fault.fault == "skip_collective") return leave_out_collective(program, fault.op);
  std::vector<std::int64_t> shard_sizes;
  for (const UnitSpec& unit : plan.units) {
    shard_sizes.push_back(make_shard_layout(plan.model, unit, plan.groups.num_shards).shard_size);
  }
  return require_swap(program, shard_sizes).program;
}

}  // namespace

ProofResult prove_program(const Plan& plan, const StepProgram& program) {
  const std::vector<ProofGroup> groups = proof_groups(plan.mesh);
  const StepProgram first = on_groups_of(program, groups, 0);
  const ProgramClass all{&first, ranks_without(plan.mesh, {})};
  return prove({&all, 1}, groups);
}

FaultyStep prove_faulty_step(const Plan& plan, const std::vector<ChaosFault>& faults) {
  FaultyStep out;
  for (const ChaosFault& fault : faults) {
    if (shows_in_the_list(fault) && (out.step == 0 || fault.step < out.step)) out.step = fault.step;
  }
  if (out.step == 0) return out;
  const std::vector<ProofGroup> groups = proof_groups(plan.mesh);
  std::map<int, StepProgram> wrong;  // by rank
  for (const ChaosFault& fault : faults) {
    if (!shows_in_the_list(fault) || fault.step != out.step) continue;
    const int rank = static_cast<int>(fault.rank);
    const auto at = wrong.try_emplace(rank, on_groups_of(plan.program, groups, rank)).first;
    at->second = with_fault(plan, at->second, fault);
  }
  std::vector<ProgramClass> classes;
  std::vector<int> faulty;
  for (const auto& [rank, program] : wrong) {
    classes.push_back({&program, {rank}});
    faulty.push_back(rank);
  }
  const std::vector<int> others = ranks_without(plan.mesh, faulty);
  StepProgram right;
  if (!others.empty()) {
    right = on_groups_of(plan.program, groups, others.front());
    classes.push_back({&right, others});
  }
  out.proof = prove(classes, groups);
  return out;
}

}  // namespace tessera
