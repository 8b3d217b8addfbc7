// What every bench reports: figures beside a baseline measured in the same run.
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  std::string baseline_name;  // "": no baseline
  double baseline = 0;
  double ratio() const { return baseline != 0 ? value / baseline : 0; }  // value ÷ baseline
};

// A table for people, or a JSON list of {name, value, unit, baseline_name, baseline, ratio}. Ends with a newline.
std::string figures_text(const std::vector<Figure>& figures);
std::string figures_json(const std::vector<Figure>& figures);

// The middle value (the mean of the two middle ones); values must not be empty.
double median(std::vector<double> values);

}  // namespace tessera
