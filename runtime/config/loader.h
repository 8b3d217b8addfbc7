// From the YAML tree to the JobConfig by the key table, collecting every problem on the way.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "runtime/config/key_table.h"
#include "runtime/config/load.h"
#include "runtime/config/yaml_tree.h"

namespace tessera::config {

class Loader {
 public:
  // result.problems may hold earlier problems; file names the ones of this tree.
  Loader(std::string file, ConfigResult& result) : file_(std::move(file)), result_(result) {}

  // Loads the root, then checks what keys require of each other.
  void load(const YamlNode& root);

  static constexpr std::size_t kMaxProblems = 200;

 private:
  struct Place {
    int line = 0;
    bool from_override = false;
  };

  void report(const Place& place, std::string_view key, std::string message, std::string hint = {});
  void report_value(const Place& place, std::string_view key, const YamlNode& found, const std::string& expected,
                    std::string hint = {});

  // Loads a mapping's keys into target. section: as in the table; shown: the same with indices ("data.train[2]").
  template <class Target>
  void load_mapping(const YamlNode& mapping, std::string_view section, const std::string& shown, Target& target);
  void load_section(const YamlEntry& entry);
  void report_unknown(const Place& place, std::string_view section, const std::string& shown, const std::string& key);
  void report_missing(std::string_view section, const std::string& shown, const Place& place);

  void load_value(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place,
                  FieldRef field);
  void load_integer(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place,
                    FieldRef field);
  void load_number(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place,
                   FieldRef field);
  void load_bool(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place, FieldRef field);
  void load_word(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place, FieldRef field);
  void load_text(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place,
                 std::string& field);
  void load_list(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place, FieldRef field);
  void load_steps(const KeyRow& row, const std::string& shown, const YamlNode& node, const Place& place,
                  std::optional<StepRange>& field);
  void load_fault(const YamlNode& node, const std::string& shown, const Place& place, ChaosFault& fault);
  void load_group(const YamlNode& node, const std::string& shown, const Place& place, OptimizerGroup& group);

  void check_applicable();
  void check_relations();
  void check_intervals();

  Place place_of(const YamlNode& node) const { return {node.line, node.from_override}; }

  std::string file_;
  ConfigResult& result_;
  std::map<std::string, Place, std::less<>> places_;  // of the keys that are set
  std::set<std::string, std::less<>> spoiled_;  // keys with a problem, or meant by an unknown key: no second complaint
  std::size_t num_left_out_ = 0;
};

// The unknown-key hint for a full dotted path ("optimzer.learning_rate").
std::string hint_for_path(std::string_view path);

}  // namespace tessera::config
