// What the interpreter watches while it runs one launch: who touched which element, and what shared memory was asked.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/launch.h"

namespace temper::ir {

// One thread runs at a time; the interpreter says which. Arrays are known by small numbers that it gives them.
class AccessWatch {
 public:
  // `traffic` may be null; else it is added to.
  AccessWatch(const Launch& launch, int warp_width, size_t num_arrays, SharedTraffic* traffic)
      : launch_(launch), warp_width_(warp_width), elements_(num_arrays), traffic_(traffic) {}

  void EnterGroup(int64_t group);
  void EnterThread(int64_t thread) { thread_ = thread; }
  void PassBarrier() { ++phase_; }

  struct Access {
    int array;
    const BufferNode* buffer;
    int64_t position;  // of the element
    bool write;
    const void* site;  // the load or store of the nest; null: nothing is asked of shared memory
    int64_t step;      // tells runs of the site apart, equally in all threads; lanes of a vector have the same one
  };
  // kFailedPrecondition: the access races with an earlier one, or reads what nothing wrote in shared memory.
  absl::Status Touch(const Access& access);
  // The threads of a warp have all come as far as the one that runs: what they asked of shared memory is counted.
  void EndWarp();

  std::string ThreadName(int64_t thread) const;  // "(1,0,0)"
  std::string GroupName(int64_t group) const;
  int64_t group() const { return group_; }

 private:
  // Who wrote an element last, and two who read it: two, because any other reader than the one that asks will do.
  struct Element {
    int64_t writer_group = -1, writer = -1, written_in = -1;
    int64_t reader_groups[2] = {-1, -1};
    int64_t readers[2] = {-1, -1}, read_in = -1;
  };
  struct Request {
    const void* site;
    int64_t step, lane, byte, bytes;
  };

  absl::Status GroupRace(const Access& access, int64_t other, bool other_wrote) const;
  absl::Status ThreadRace(const Access& access, int64_t other, bool other_wrote) const;
  void Count(const Request* begin, const Request* end);

  const Launch& launch_;
  const int64_t warp_width_;
  std::vector<std::vector<Element>> elements_;  // by array
  std::vector<int> shared_;                     // arrays among them that a new group has anew
  int64_t group_ = 0, thread_ = 0;
  int64_t phase_ = 0;  // between two barriers of one group
  SharedTraffic* traffic_;
  std::vector<Request> requests_;  // of the warp
};

}  // namespace temper::ir
