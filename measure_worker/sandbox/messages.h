// What the frames between supervisor and child say. Decoding trusts nothing: the child has run foreign code.
#pragma once

#include <vector>

#include "measure_worker/backend.h"
#include "measure_worker/sandbox/frame.h"
#include "trial/trial.h"

namespace temper::worker {

enum class MessageKind : uint8_t {
  kBatch = 1,    // supervisor: BatchOrder
  kModel,        // supervisor: ModelWork
  kFinals,       // supervisor: FinalsWork
  kBegin,        // child: a phase begins, for a candidate or (-1) for all
  kBuilt,        // child: a candidate's build ended well
  kTrial,        // child: a candidate's result
  kModelResult,  // child
  kDone,         // child: the order is carried out
  kLeaving,      // child: it ends, for its device is lost; of the order, what was told is carried out
};

struct BatchOrder {
  BatchWork work;
  bool one_by_one = false;  // build alone, to find which of several builds crashed
};
struct Begin {
  Phase phase = Phase::kPrepare;
  int index = -1;  // into the candidates as sent
};
struct Trial {
  int index = 0;
  TrialResult result;
};

Frame Encode(const BatchOrder& order);
Frame Encode(const ModelWork& work);
Frame Encode(const FinalsWork& work);
Frame Encode(const Begin& begin);
Frame EncodeBuilt(int index);
Frame Encode(const Trial& trial);
Frame Encode(const ModelResult& result);
Frame EncodeDone();
Frame EncodeLeaving();

// kInvalidArgument if the frame is of another kind or does not parse to its end.
absl::StatusOr<BatchOrder> DecodeBatch(const Frame& frame);
absl::StatusOr<ModelWork> DecodeModel(const Frame& frame);
absl::StatusOr<FinalsWork> DecodeFinals(const Frame& frame);
absl::StatusOr<Begin> DecodeBegin(const Frame& frame);
absl::StatusOr<int> DecodeBuilt(const Frame& frame);
absl::StatusOr<Trial> DecodeTrial(const Frame& frame);
absl::StatusOr<ModelResult> DecodeModelResult(const Frame& frame);

}  // namespace temper::worker
