#include "measure_worker/sandbox/messages.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace temper::worker {
namespace {

// Both directions run over one description of each message: `Fields(archive, message)` visits its fields in order.
class Writer {
 public:
  void Int(int64_t v) { Raw(&v, sizeof v); }
  void Double(double v) { Raw(&v, sizeof v); }
  void String(const std::string& s) {
    Int(static_cast<int64_t>(s.size()));
    bytes_.append(s);
  }
  void SharedString(const std::shared_ptr<const std::string>& s) { String(s == nullptr ? std::string() : *s); }
  template <typename T>
  void Choice(T v, std::span<const T>) {
    Int(static_cast<int64_t>(v));
  }
  template <typename T, typename F>
  void List(const std::vector<T>& list, F each) {
    Int(static_cast<int64_t>(list.size()));
    for (const T& item : list) each(item);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  void Raw(const void* p, size_t n) { bytes_.append(static_cast<const char*>(p), n); }
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  template <typename T>
  void Int(T& v) {
    int64_t wide = 0;
    Raw(&wide, sizeof wide);
    v = static_cast<T>(wide);
  }
  void Double(double& v) { Raw(&v, sizeof v); }
  void String(std::string& s) {
    size_t n = 0;
    if (!Count(n)) return;
    s.assign(bytes_, at_, n);
    at_ += n;
  }
  void SharedString(std::shared_ptr<const std::string>& s) {
    std::string text;
    String(text);
    s = std::make_shared<const std::string>(std::move(text));
  }
  // One of `all`.
  template <typename T>
  void Choice(T& v, std::span<const T> all) {
    int64_t number = 0;
    Int(number);
    const auto found = std::find_if(all.begin(), all.end(), [&](T t) { return static_cast<int64_t>(t) == number; });
    ok_ = ok_ && found != all.end();
    if (ok_) v = *found;
  }
  template <typename T, typename F>
  void List(std::vector<T>& list, F each) {
    size_t n = 0;
    if (!Count(n)) return;  // each item takes a byte at least
    for (size_t i = 0; i < n && ok_; ++i) each(list.emplace_back());
  }
  bool Finished() const { return ok_ && at_ == bytes_.size(); }

 private:
  void Raw(void* p, size_t n) {
    if (!ok_ || bytes_.size() - at_ < n) {
      ok_ = false;
      return;
    }
    std::memcpy(p, bytes_.data() + at_, n);
    at_ += n;
  }
  bool Count(size_t& n) {
    Int(n);
    ok_ = ok_ && n <= bytes_.size() - at_;
    return ok_;
  }
  const std::string& bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

std::span<const Phase> AllPhases() {
  static constexpr Phase kAll[] = {Phase::kPrepare, Phase::kBuild,      Phase::kVerify,
                                   Phase::kTime,    Phase::kModelBuild, Phase::kModelRun};
  return kAll;
}

template <typename A, typename M>
void CandidateFields(A& a, M& c) {
  a.Int(c.id);
  a.Int(c.attempt);
  a.String(c.template_name);
  a.Int(c.template_version);
  a.String(c.config);
}

template <typename A, typename M>
void BatchFields(A& a, M& order) {
  auto& w = order.work;
  a.String(w.workload);
  a.String(w.target);
  a.Double(w.incumbent_s);
  a.Int(w.plan.repeats);
  a.Int(w.plan.min_sample_us);
  a.Double(w.plan.race_factor);
  a.Int(w.plan.build_timeout_ms);
  a.Int(w.plan.run_timeout_ms);
  a.String(w.plan.cache_policy);
  a.Int(w.plan.constant_bytes);
  a.List(w.candidates, [&](auto& c) { CandidateFields(a, c); });
  a.Int(order.one_by_one);
}

template <typename A, typename M>
void ModelFields(A& a, M& w) {
  a.SharedString(w.graph_json);
  a.String(w.target);
  a.Int(w.seed);
  a.List(w.picks, [&](auto& p) {
    a.String(p.workload);
    a.String(p.template_name);
    a.String(p.config);
    a.Double(p.seconds);
  });
  a.Int(w.rounds);
  a.Int(w.budget_ms);
}

template <typename A, typename M>
void FinalsFields(A& a, M& w) {
  ModelFields(a, w.model);
  a.List(w.tasks, [&](auto& task) {
    a.String(task.workload);
    a.List(task.candidates, [&](auto& c) { CandidateFields(a, c); });
  });
}

template <typename A, typename M>
void TrialFields(A& a, M& t) {
  a.Int(t.index);
  a.Choice(t.result.outcome, AllOutcomes());
  a.String(t.result.error);
  a.List(t.result.costs_s, [&](auto& c) { a.Double(c); });
  a.Int(t.result.build_ms);
  a.Int(t.result.run_ms);
  a.Double(t.result.drift);
}

template <typename A, typename M>
void ModelResultFields(A& a, M& r) {
  a.Choice(r.outcome, AllOutcomes());
  a.String(r.error);
  a.List(r.untuned_s, [&](auto& c) { a.Double(c); });
  a.List(r.tuned_s, [&](auto& c) { a.Double(c); });
  a.Double(r.relative_error);
}

template <typename F>
Frame Write(MessageKind kind, F fields) {
  Writer writer;
  fields(writer);
  return Frame{static_cast<uint8_t>(kind), writer.Take()};
}

template <typename M, typename F>
absl::StatusOr<M> Read(const Frame& frame, MessageKind kind, F fields) {
  if (frame.kind != static_cast<uint8_t>(kind)) {
    return absl::InvalidArgumentError(
        absl::StrCat("message of kind ", frame.kind, " where ", static_cast<int>(kind), " belongs"));
  }
  Reader reader(frame.payload);
  M message{};
  fields(reader, message);
  if (!reader.Finished()) return absl::InvalidArgumentError(absl::StrCat("malformed message of kind ", frame.kind));
  return message;
}

}  // namespace

Frame Encode(const BatchOrder& order) {
  return Write(MessageKind::kBatch, [&](Writer& w) { BatchFields(w, order); });
}
Frame Encode(const ModelWork& work) {
  return Write(MessageKind::kModel, [&](Writer& w) { ModelFields(w, work); });
}
Frame Encode(const FinalsWork& work) {
  return Write(MessageKind::kFinals, [&](Writer& w) { FinalsFields(w, work); });
}
Frame Encode(const Begin& begin) {
  return Write(MessageKind::kBegin, [&](Writer& w) {
    w.Choice(begin.phase, AllPhases());
    w.Int(begin.index);
  });
}
Frame EncodeBuilt(int index) {
  return Write(MessageKind::kBuilt, [&](Writer& w) { w.Int(index); });
}
Frame Encode(const Trial& trial) {
  return Write(MessageKind::kTrial, [&](Writer& w) { TrialFields(w, trial); });
}
Frame Encode(const ModelResult& result) {
  return Write(MessageKind::kModelResult, [&](Writer& w) { ModelResultFields(w, result); });
}
Frame EncodeDone() { return Frame{static_cast<uint8_t>(MessageKind::kDone), ""}; }
Frame EncodeLeaving() { return Frame{static_cast<uint8_t>(MessageKind::kLeaving), ""}; }

absl::StatusOr<BatchOrder> DecodeBatch(const Frame& frame) {
  return Read<BatchOrder>(frame, MessageKind::kBatch, [](Reader& r, BatchOrder& m) { BatchFields(r, m); });
}
absl::StatusOr<ModelWork> DecodeModel(const Frame& frame) {
  return Read<ModelWork>(frame, MessageKind::kModel, [](Reader& r, ModelWork& m) { ModelFields(r, m); });
}
absl::StatusOr<FinalsWork> DecodeFinals(const Frame& frame) {
  return Read<FinalsWork>(frame, MessageKind::kFinals, [](Reader& r, FinalsWork& m) { FinalsFields(r, m); });
}
absl::StatusOr<Begin> DecodeBegin(const Frame& frame) {
  return Read<Begin>(frame, MessageKind::kBegin, [](Reader& r, Begin& m) {
    r.Choice(m.phase, AllPhases());
    r.Int(m.index);
  });
}
absl::StatusOr<int> DecodeBuilt(const Frame& frame) {
  return Read<int>(frame, MessageKind::kBuilt, [](Reader& r, int& index) { r.Int(index); });
}
absl::StatusOr<Trial> DecodeTrial(const Frame& frame) {
  return Read<Trial>(frame, MessageKind::kTrial, [](Reader& r, Trial& m) { TrialFields(r, m); });
}
absl::StatusOr<ModelResult> DecodeModelResult(const Frame& frame) {
  return Read<ModelResult>(frame, MessageKind::kModelResult,
                           [](Reader& r, ModelResult& m) { ModelResultFields(r, m); });
}

}  // namespace temper::worker
