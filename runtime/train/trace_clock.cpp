#include "runtime/train/trace_clock.h"

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

CollectiveTag clock_tag() {
  return {.what = "clock", .phase = "trace"};
}

// The member that asks for each: the first of its domain. The reference's domain has nobody to ask.
std::vector<int> askers(const std::vector<std::uint64_t>& domains, int reference) {
  std::vector<int> asker(domains.size());
  for (std::size_t member = 0; member < domains.size(); ++member) {
    const std::uint64_t domain = domains[member];
    const bool unknown = domain == 0;
    const auto first =
        unknown ? static_cast<std::ptrdiff_t>(member) : std::ranges::find(domains, domain) - domains.begin();
    const bool of_reference = !unknown && domain == domains[static_cast<std::size_t>(reference)];
    asker[member] = of_reference ? reference : static_cast<int>(first);
  }
  return asker;
}

class Exchanger {
 public:
  Exchanger(Communicator& world, StreamView stream) : world_(world), stream_(stream) {}

  ClockOffset ask(int peer) {
    std::array<ClockExchange, kClockExchanges> exchanges;
    for (ClockExchange& each : exchanges) {
      each.asked_ns = monotonic_ns();
      send(each.asked_ns, peer);
      each.other_ns = receive(peer);
      each.answered_ns = monotonic_ns();
    }
    return best_offset(exchanges);
  }

  void answer(int peer) {
    for (int i = 0; i < kClockExchanges; ++i) {
      receive(peer);
      send(monotonic_ns(), peer);
    }
  }

 private:
  void send(std::int64_t time, int peer) {
    world_.send({.data = &time, .count = 1, .dtype = DType::kInt64, .peer = peer, .tag = clock_tag()}, stream_)
        .synchronize();
  }
  std::int64_t receive(int peer) {
    std::int64_t time = 0;
    world_.recv({.data = &time, .count = 1, .dtype = DType::kInt64, .peer = peer, .tag = clock_tag()}, stream_)
        .synchronize();
    return time;
  }

  Communicator& world_;
  StreamView stream_;
};

}  // namespace

ClockOffset best_offset(std::span<const ClockExchange> exchanges) {
  require(!exchanges.empty(), "a clock is compared at least once");
  const auto round_trip = [](const ClockExchange& each) { return each.answered_ns - each.asked_ns; };
  const ClockExchange& best = *std::ranges::min_element(exchanges, {}, round_trip);
  const std::int64_t half = round_trip(best) / 2;
  return {.offset_ns = best.other_ns - (best.asked_ns + half), .uncertainty_ns = round_trip(best) - half};
}

ClockOffset align_clocks(Communicator& world, StreamView stream, int reference, std::uint64_t domain) {
  std::vector<std::uint64_t> domains(static_cast<std::size_t>(world.size()));
  world
      .all_gather({.input = &domain, .output = domains.data(), .count = 1, .dtype = DType::kUInt64, .tag = clock_tag()},
                  stream)
      .synchronize();
  const std::vector<int> asker = askers(domains, reference);

  Exchanger exchanger(world, stream);
  ClockOffset own;
  for (int member = 0; member < world.size(); ++member) {
    if (asker[static_cast<std::size_t>(member)] != member || member == reference) continue;
    if (world.rank() == member) own = exchanger.ask(reference);
    if (world.rank() == reference) exchanger.answer(member);
  }

  // Each slot is written by one member, so that the sum is a gather.
  std::vector<std::int64_t> shared(domains.size() * 2, 0);
  const auto slot = [&](int member) { return shared.data() + static_cast<std::ptrdiff_t>(member) * 2; };
  slot(world.rank())[0] = own.offset_ns;
  slot(world.rank())[1] = own.uncertainty_ns;
  world.all_reduce({.data = shared.data(), .count = shared.size(), .dtype = DType::kInt64, .tag = clock_tag()}, stream)
      .synchronize();
  const std::int64_t* of_domain = slot(asker[static_cast<std::size_t>(world.rank())]);
  return {.offset_ns = of_domain[0], .uncertainty_ns = of_domain[1]};
}

}  // namespace tessera
