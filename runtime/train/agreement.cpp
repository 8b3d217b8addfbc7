#include "runtime/train/agreement.h"

#include <limits>
#include <optional>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/train/trainer.h"

namespace tessera {
namespace {

struct Failure {
  ExitCode code;
  std::string line;
};

}  // namespace

void run_agreed(Communicator& world, StreamView stream, const Placement& placement,
                const std::function<void()>& phase) {
  std::optional<Failure> failure;
  try {
    phase();
  } catch (const Error& error) {
    failure = Failure{error.exit_code(), error.line()};
  } catch (const std::exception& error) {
    failure = Failure{ExitCode::kInternal, error.what()};
  }
  constexpr std::int64_t kNobody = std::numeric_limits<std::int64_t>::max();
  std::int64_t first = failure ? world.rank() : kNobody;
  const CollectiveTag tag{.what = "errors", .phase = "agree"};
  world.all_reduce({.data = &first, .count = 1, .dtype = DType::kInt64, .reduce = ReduceOp::kMin, .tag = tag}, stream)
      .synchronize();
  if (first == kNobody) return;
  const int root = static_cast<int>(first);
  std::int64_t header[2] = {0, 0};
  if (root == world.rank()) {
    header[0] = static_cast<std::int64_t>(failure->code);
    header[1] = static_cast<std::int64_t>(failure->line.size());
  }
  world.broadcast({.data = header, .count = 2, .dtype = DType::kInt64, .root = root, .tag = tag}, stream).synchronize();
  std::string line = root == world.rank() ? failure->line : std::string(static_cast<std::size_t>(header[1]), ' ');
  world.broadcast({.data = line.data(), .count = line.size(), .dtype = DType::kUInt8, .root = root, .tag = tag}, stream)
      .synchronize();
  throw AgreedError(static_cast<ExitCode>(header[0]), placement.world_of_logical(root), line);
}

}  // namespace tessera
