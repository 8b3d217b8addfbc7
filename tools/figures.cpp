#include "tools/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera {

std::string figures_text(const std::vector<Figure>& figures) {
  std::size_t width = 4;
  for (const Figure& f : figures) width = std::max(width, f.name.size());
  std::string out;
  for (const Figure& f : figures) {
    out += fmt::format("{:<{}}  {:>10.4g} {:<10}", f.name, width, f.value, f.unit);
    if (!f.baseline_name.empty())
      out += fmt::format("  {:>6.3f} × {} ({:.4g})", f.ratio(), f.baseline_name, f.baseline);
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

std::string figures_json(const std::vector<Figure>& figures) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Figure& f : figures) {
    nlohmann::ordered_json row = {{"name", f.name},           {"value", f.value},    {"unit", f.unit},
                                  {"baseline_name", nullptr}, {"baseline", nullptr}, {"ratio", nullptr}};
    if (!f.baseline_name.empty()) {
      row["baseline_name"] = f.baseline_name;
      row["baseline"] = f.baseline;
      row["ratio"] = f.ratio();
    }
    list.push_back(row);
  }
  return list.dump(1) + "\n";
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

}  // namespace tessera
