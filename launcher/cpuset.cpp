#include "launcher/cpuset.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <sstream>

#include "runtime/base/error.h"

namespace tessera {
namespace {

// A kernel mask of any size: machines with more than 1024 CPUs exist.
struct Mask {
  explicit Mask(int capacity) : num_cpus(capacity), set(CPU_ALLOC(static_cast<std::size_t>(capacity))) {
    CPU_ZERO_S(bytes(), set);
  }
  ~Mask() { CPU_FREE(set); }
  Mask(const Mask&) = delete;
  Mask& operator=(const Mask&) = delete;
  std::size_t bytes() const { return CPU_ALLOC_SIZE(static_cast<std::size_t>(num_cpus)); }

  int num_cpus;
  cpu_set_t* set;
};

constexpr int kFirstCapacity = 1024;
constexpr int kLastCapacity = 1 << 20;

}  // namespace

std::string cpuset_text(std::vector<int> pus) {
  if (pus.empty()) return "none";
  std::sort(pus.begin(), pus.end());
  std::string text;
  for (std::size_t first = 0; first < pus.size();) {
    std::size_t last = first;
    while (last + 1 < pus.size() && pus[last + 1] <= pus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += pus[first] == pus[last] ? fmt::format("{}", pus[first]) : fmt::format("{}-{}", pus[first], pus[last]);
    first = last + 1;
  }
  return text;
}

std::vector<int> parse_cpuset(const std::string& text) {
  std::vector<int> pus;
  if (text == "none") return pus;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0, last = 0;
    char dash = 0;
    std::istringstream range(part);
    require(static_cast<bool>(range >> first), "a cpuset is a list like 0-2,5");
    last = first;
    if (range >> dash) require(dash == '-' && static_cast<bool>(range >> last), "a cpuset is a list like 0-2,5");
    for (int pu = first; pu <= last; ++pu) pus.push_back(pu);
  }
  return pus;
}

std::vector<int> current_cpuset() {
  for (int capacity = kFirstCapacity; capacity <= kLastCapacity; capacity *= 2) {
    const Mask mask(capacity);
    if (::sched_getaffinity(0, mask.bytes(), mask.set) != 0) {
      if (errno == EINVAL) continue;  // the kernel knows more CPUs than the mask holds
      break;
    }
    std::vector<int> pus;
    for (int pu = 0; pu < capacity; ++pu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(pu), mask.bytes(), mask.set)) pus.push_back(pu);
    }
    return pus;
  }
  throw DeviceError(fmt::format("device: the kernel does not tell this thread's CPUs: {}", std::strerror(errno)));
}

void bind_this_thread(const std::vector<int>& pus) {
  const int capacity = std::max(kFirstCapacity, pus.empty() ? 0 : *std::max_element(pus.begin(), pus.end()) + 1);
  const Mask mask(capacity);
  for (const int pu : pus) CPU_SET_S(static_cast<std::size_t>(pu), mask.bytes(), mask.set);
  if (::sched_setaffinity(0, mask.bytes(), mask.set) != 0) {
    throw DeviceError(
        fmt::format("device: cannot bind a thread to CPUs {}: {}", cpuset_text(pus), std::strerror(errno)),
        "device.bind: none");
  }
}

}  // namespace tessera
