#include "runtime/config/chaos_faults.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace tessera::config {

const std::vector<FaultKind>& fault_kinds() {
  using Seconds = FaultKind::Seconds;
  static const std::vector<std::string_view> any = {"all_gather", "reduce_scatter", "all_reduce", "broadcast"};
  static const std::vector<FaultKind> kinds = {
      {.name = "swap_collectives", .ops = {"all_gather"}},
      {.name = "skip_collective", .ops = any},
      {.name = "extra_collective", .ops = any},
      {.name = "wrong_dtype", .ops = any},
      {.name = "wrong_count", .ops = any},
      {.name = "wrong_reduce_op", .ops = {"reduce_scatter", "all_reduce"}},
      {.name = "wrong_root", .ops = {"broadcast"}},
      {.name = "nan_loss"},
      {.name = "throw"},
      {.name = "hang", .seconds = Seconds::kOptional},
      {.name = "exit"},
      {.name = "kill"},
      {.name = "stop"},
      {.name = "slow", .seconds = Seconds::kRequired},
      {.name = "slow_teardown", .seconds = Seconds::kRequired},
      {.name = "kill_in_save", .in_save = true},
      {.name = "disk_full", .in_save = true},
      {.name = "flip_bit", .in_save = true},
  };
  return kinds;
}

const FaultKind& fault_kind(std::string_view name) {
  const auto& kinds = fault_kinds();
  const auto at = std::find_if(kinds.begin(), kinds.end(), [&](const FaultKind& kind) { return kind.name == name; });
  if (at == kinds.end()) throw InternalError(fmt::format("chaos: no fault is called {}", name));
  return *at;
}

bool takes_op(const FaultKind& kind, std::string_view op) {
  return std::find(kind.ops.begin(), kind.ops.end(), op) != kind.ops.end();
}

std::vector<std::string_view> fault_names() {
  std::vector<std::string_view> names;
  for (const FaultKind& kind : fault_kinds()) names.push_back(kind.name);
  return names;
}

}  // namespace tessera::config
