#include "fsdp/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "runtime/base/error.h"

namespace tessera {
namespace {

void append_segment(const ModelSpec& model, int segment, UnitSpec& unit) {
  unit.segments.push_back(segment);
  for (const int p : model.segments[static_cast<std::size_t>(segment)].parameters) {
    if (std::find(unit.parameters.begin(), unit.parameters.end(), p) == unit.parameters.end())
      unit.parameters.push_back(p);
  }
}

std::vector<UnitSpec> group_segments(const ModelSpec& model, const std::string& wrap) {
  const int num_segments = static_cast<int>(model.segments.size());
  const int num_blocks = num_segments - 2;
  require(num_blocks >= 1, "a model has an embedding, at least one block and a head");
  UnitSpec root;
  root.name = "root";
  if (wrap == "root") {
    for (int s = 0; s < num_segments; ++s) append_segment(model, s, root);
    return {root};
  }
  std::int64_t per_unit = 1;
  if (wrap != "block") {
    const auto [end, error] = std::from_chars(wrap.data(), wrap.data() + wrap.size(), per_unit);
    if (error != std::errc{} || end != wrap.data() + wrap.size() || per_unit < 1) {
      throw ConfigError(fmt::format("fsdp.wrap: '{}' is neither block, root nor a number of blocks from 1", wrap));
    }
  }
  append_segment(model, 0, root);
  append_segment(model, num_segments - 1, root);
  std::vector<UnitSpec> units = {root};
  for (int first = 0; first < num_blocks; first += static_cast<int>(per_unit)) {
    const int last = static_cast<int>(std::min<std::int64_t>(first + per_unit, num_blocks)) - 1;
    UnitSpec unit;
    unit.name = first == last ? fmt::format("block.{}", first) : fmt::format("blocks.{}-{}", first, last);
    for (int b = first; b <= last; ++b) append_segment(model, b + 1, unit);
    units.push_back(unit);
  }
  return units;
}

}  // namespace

std::vector<UnitSpec> make_units(const ModelSpec& model, const std::string& wrap) {
  std::vector<UnitSpec> units = group_segments(model, wrap);
  for (UnitSpec& unit : units) {
    unit.frozen = std::ranges::all_of(unit.parameters,
                                      [&](int p) { return model.parameters[static_cast<std::size_t>(p)].frozen; });
  }
  return units;
}

}  // namespace tessera
