#include "checkpoint/model_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "runtime/base/error.h"

namespace tessera {
namespace {

// A model of another size differs in every tensor; the first ones tell.
constexpr std::size_t kMaxNamedTensors = 12;

std::vector<std::string> tensor_differences(const Manifest& manifest, const std::vector<ExpectedTensor>& tensors,
                                            ExtraTensors extra) {
  std::vector<std::string> found;
  std::set<std::string> expected;
  for (const ExpectedTensor& tensor : tensors) {
    expected.insert(tensor.name);
    const TensorRecord* saved = manifest.find(tensor.name);
    if (saved == nullptr) {
      found.push_back(fmt::format("{}: not saved, {} now", tensor.name, str(tensor.shape)));
    } else if (saved->shape != tensor.shape) {
      found.push_back(fmt::format("{}: {} saved, {} now", tensor.name, str(saved->shape), str(tensor.shape)));
    }
  }
  if (extra == ExtraTensors::kIgnore) return found;
  for (const TensorRecord& saved : manifest.tensors)
    if (!expected.contains(saved.name))
      found.push_back(fmt::format("{}: {} saved, nothing now", saved.name, str(saved.shape)));
  return found;
}

}  // namespace

void check_model(const Manifest& manifest, const std::string& folder, const Fields& model,
                 const std::vector<ExpectedTensor>& tensors, ExtraTensors extra) {
  std::vector<std::string> found = differences(manifest.model, model);
  std::ranges::move(tensor_differences(manifest, tensors, extra), std::back_inserter(found));
  if (found.empty()) return;
  const std::size_t num_left_out = found.size() - std::min(found.size(), kMaxNamedTensors);
  found.resize(found.size() - num_left_out);
  throw CheckpointError(fmt::format("{}: another model: {}{}", folder, fmt::join(found, "; "),
                                    num_left_out > 0 ? fmt::format("; and {} more", num_left_out) : ""),
                        extra == ExtraTensors::kRefuse
                            ? "resume with the job file of the run, or start a new one with checkpoint.init_from"
                            : "the job's model section has to be the saved one (tessera checkpoint show)");
}

}  // namespace tessera
