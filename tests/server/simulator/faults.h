// What may go wrong in a simulated fleet: a switch for each, so that each can be had alone.
#pragma once

namespace temper::simulator {

struct Faults {
  // The surroundings.
  bool lossy_network = false;  // requests and replies are late, dropped, doubled; waiting calls are cut
  bool crash = false;          // the server is killed and comes back
  bool freeze = false;         // the server stands still for a while
  bool wall_jumps = false;     // its wall clock jumps
  bool store_fails = false;    // now and then a write fails
  bool early_calls = false;    // clients call while the server still looks through what a dead one left
  bool meddling = false;       // people change the priorities of jobs now and then

  // Workers, beside honest ones.
  bool slow = false;          // takes long, stands still now and then, and answers after its lease ran out
  bool broken = false;        // answers late that it could not measure
  bool flapping = false;      // dies with what it was granted, and comes back
  bool twins = false;         // two of one name
  bool unfit = false;         // one job has an operator that is too big for every device
  bool zero_threads = false;  // registers with threads = 0
  bool not_finite = false;    // sends NaN where a time belongs
  bool verbose = false;       // sends more samples than a store takes
  bool greedy = false;        // asks for a hundred leases with one slot
  bool hoarder = false;       // renews its leases and never answers
};

}  // namespace temper::simulator
