#include "launcher/hostfile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "runtime/base/error.h"

namespace tessera {
namespace {

constexpr int kMostSlots = 1000000;

// As mpirun spells them.
constexpr std::array<std::string_view, 3> kSlots = {"slots", "cpu", "count"};
constexpr std::array<std::string_view, 12> kMaxSlots = {"max_slots", "max-slots", "slots_max", "slots-max",
                                                        "max_cpu",   "max-cpu",   "cpu_max",   "cpu-max",
                                                        "max_count", "max-count", "count_max", "count-max"};
constexpr std::array<std::string_view, 3> kUser = {"username", "user_name", "user-name"};
constexpr std::string_view kPort = "port";

template <std::size_t N>
bool is_one_of(std::string_view key, const std::array<std::string_view, N>& keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::optional<int> parse_slots(std::string_view text) {
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
  return whole && value >= 0 && value <= kMostSlots ? std::optional(value) : std::nullopt;
}

// One line of a hostfile, read word by word: "name", then keys with values, spaces around "=" or not.
struct Line {
  std::string where;  // "launch: --hostfile F:3"
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;

  [[noreturn]] void refuse(const std::string& found, const std::string& expected) const {
    throw ConfigError(fmt::format("{}: found {}, expected {}", where, found, expected));
  }
};

std::string spaced_equals(std::string_view text) {
  std::string spaced;
  for (const char letter : text.substr(0, text.find('#'))) spaced += letter == '=' ? " = " : std::string(1, letter);
  return spaced;
}

Line split(std::string_view text, const std::string& where) {
  Line line{.where = where};
  std::istringstream words(spaced_equals(text));
  words >> line.name;
  for (std::string key; words >> key;) {
    std::string equals, value;
    words >> equals;
    if (equals != "=") line.refuse(key, "key=value, as slots=8");
    words >> value;
    line.values.emplace_back(key, value);
  }
  return line;
}

struct Entry {
  Host host;
  bool counted = false;  // by slots=, not by lines
};

int slots_of(const Line& line, const std::string& key, const std::string& value) {
  const auto slots = parse_slots(value);
  if (!slots)
    line.refuse(fmt::format("{}={}", key, value), fmt::format("{}= and a number from 0 to {}", key, kMostSlots));
  return *slots;
}

Entry entry_of(const Line& line) {
  Entry entry{.host = {.name = line.name}};
  if (const auto at = line.name.find('@'); at != std::string::npos)
    entry.host = {.name = line.name.substr(at + 1), .user = line.name.substr(0, at)};
  if (entry.host.name.find(':') != std::string::npos)
    throw ConfigError(fmt::format("{}: found {}, and mpirun takes no ':' in a host, be it slots or an IPv6 address",
                                  line.where, line.name),
                      "\"name slots=8\"; for an address a name, as /etc/hosts gives it one");
  std::optional<int> most;
  for (const auto& [key, value] : line.values) {
    if (is_one_of(key, kSlots)) {
      if (entry.counted) line.refuse(fmt::format("a second {}={}", key, value), "one number of slots");
      entry.host.slots = slots_of(line, key, value);
      entry.counted = true;
    } else if (is_one_of(key, kMaxSlots)) {
      most = slots_of(line, key, value);
    } else if (is_one_of(key, kUser)) {
      entry.host.user = value;
    } else if (key != kPort) {
      line.refuse(key, "slots, max_slots, username or port");
    }
  }
  if (most && entry.host.slots.value_or(0) > *most)
    line.refuse(fmt::format("slots={} with max_slots={}", *entry.host.slots, *most), "no more slots than max_slots");
  return entry;
}

std::vector<Entry>::iterator find(std::vector<Entry>& entries, const std::string& name) {
  return std::ranges::find_if(entries, [&](const Entry& each) { return each.host.name == name; });
}

std::vector<Host> hosts_of(const std::vector<Entry>& entries) {
  std::vector<Host> hosts;
  hosts.reserve(entries.size());
  for (const Entry& entry : entries) hosts.push_back(entry.host);
  return hosts;
}

}  // namespace

std::vector<Host> read_hostfile(const std::string& path) {
  std::error_code unknown;
  if (std::filesystem::is_fifo(path, unknown) || std::filesystem::is_character_file(path, unknown))
    throw ConfigError(fmt::format("launch: --hostfile {}: is no file, and mpirun has to read it as well", path),
                      "write the hosts into a file, or --host a:8,b:8");
  std::ifstream file(path);
  if (!file) throw ConfigError(fmt::format("launch: --hostfile {}: cannot be read", path));
  std::vector<Entry> entries;
  int number = 0;
  for (std::string text; std::getline(file, text);) {
    const Line line = split(text, fmt::format("launch: --hostfile {}:{}", path, ++number));
    if (line.name.empty()) continue;
    const Entry entry = entry_of(line);
    const auto known = find(entries, entry.host.name);
    if (known == entries.end()) {
      entries.push_back(entry);
    } else if (entry.counted || known->counted) {
      line.refuse(fmt::format("{} again", entry.host.name),
                  "each host once with slots=, or once for each slot without");
    } else {
      known->host.slots = known->host.slots.value_or(1) + 1;
    }
  }
  if (file.bad()) throw ConfigError(fmt::format("launch: --hostfile {}: cannot be read", path));
  if (entries.empty())
    throw ConfigError(fmt::format("launch: --hostfile {}: names no host", path), "one host a line, \"name slots=8\"");
  return hosts_of(entries);
}

std::vector<Host> parse_host_list(const std::string& list) {
  std::vector<Entry> entries;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    if (part.starts_with('+')) return {};  // relative to an allocation that only mpirun knows
    const auto colon = part.find(':');
    Host host{.name = part.substr(0, colon)};
    const std::string number = colon == std::string::npos ? "" : part.substr(colon + 1);
    const bool told = colon != std::string::npos && number != "*";
    if (told) host.slots = parse_slots(number);
    if (host.name.empty() || (told && !host.slots))
      throw ConfigError(fmt::format("launch: --host {}: found '{}', expected name or name:slots", list, part));
    const auto known = find(entries, host.name);
    if (known == entries.end()) {
      entries.push_back({.host = host});
    } else if (known->host.slots && host.slots) {
      known->host.slots = std::min(kMostSlots, *known->host.slots + *host.slots);
    }
  }
  return hosts_of(entries);
}

std::optional<int> count_slots(const std::vector<Host>& hosts) {
  std::int64_t slots = 0;
  for (const Host& host : hosts) {
    if (!host.slots) return std::nullopt;
    slots = std::min<std::int64_t>(slots + *host.slots, kMostSlots);
  }
  return hosts.empty() ? std::nullopt : std::optional(static_cast<int>(slots));
}

std::string host_list(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts)
    text +=
        fmt::format("{}{}{}", text.empty() ? "" : ",", host.name, host.slots ? fmt::format(":{}", *host.slots) : "");
  return text;
}

std::string host_names(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) text += (text.empty() ? "" : ", ") + host.name;
  return text;
}

}  // namespace tessera
