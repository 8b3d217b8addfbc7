// What ranks can see of each other without a message: whether the process of a peer lives, and a page in which every rank
// shows how far it is. The page is an anonymous memory file that the processes of one machine map: it needs no
// run directory, and it is still there when its owner is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/collective_evidence.h"
#include "parallel/teardown.h"

namespace tessera {

// A peer as it looks from here.
struct PeerSigns {
  int world_rank = 0;
  std::string host;
  std::int64_t pid = 0;
  bool visible = false;  // of this machine and pid namespace; of the others nothing below is known
  bool gone = false;     // its process ended
  TeardownState state = TeardownState::kRunning;
  int failed_code = 0;  // the exit code of the error that it is about to say, or has said; 0: none
  bool spoke = false;   // it said the last word of the job
};

class Presence {
 public:
  // all_gather: the text of every rank, by world rank. Collective.
  Presence(int world_rank, const std::function<std::vector<std::string>(const std::string&)>& all_gather);
  ~Presence();
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

  // Of this rank, for the peers.
  void show(TeardownState state);
  void show_failed(int exit_code);
  void show_spoke();

  // All ranks but this one.
  std::vector<PeerSigns> peers() const;
  // Whether it runs or was stopped, for a message.
  Liveness liveness(int world_rank) const;

  // Sleeps until a peer's process ends, `descriptor` can be read, or the time is over.
  void wait(int descriptor, int milliseconds);

 private:
  struct Page;
  struct Peer;
  int world_rank_;
  int file_ = -1;
  Page* own_ = nullptr;
  std::vector<Peer> peers_;
};

}  // namespace tessera
