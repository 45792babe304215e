// Framing and messages: what is written is read again, and nothing else is believed.
#include "measure_worker/sandbox/frame.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "base/rng.h"
#include "measure_worker/sandbox/messages.h"

namespace temper::worker {
namespace {

std::string RandomBytes(Rng& rng, int64_t most) {
  std::string bytes(static_cast<size_t>(rng.Below(most + 1)), '\0');
  for (char& c : bytes) c = static_cast<char>(rng.Next());
  return bytes;
}

TEST(Frame, ComesOutAsItWentInHoweverItIsCut) {
  Rng rng(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<Frame> frames;
    std::string stream;
    for (int64_t i = rng.Below(6); i >= 0; --i) {
      frames.push_back({static_cast<uint8_t>(rng.Next()), RandomBytes(rng, 300)});
      stream += EncodeFrame(frames.back());
    }
    FrameReader reader;
    std::vector<Frame> got;
    for (size_t at = 0; at < stream.size();) {
      const size_t step = std::min(stream.size() - at, static_cast<size_t>(1 + rng.Below(100)));
      reader.Feed(std::string_view(stream).substr(at, step));
      at += step;
      for (;;) {
        auto frame = reader.Next();
        ASSERT_TRUE(frame.ok());
        if (!frame->has_value()) break;
        got.push_back(**frame);
      }
    }
    ASSERT_EQ(got, frames);
  }
}

TEST(Frame, ALengthThatIsNotOursIsRefusedForGood) {
  FrameReader reader;
  reader.Feed("\xff\xff\xff\xff\x01");
  EXPECT_FALSE(reader.Next().ok());
  reader.Feed(EncodeFrame({1, "later"}));
  EXPECT_FALSE(reader.Next().ok());
}

TEST(Frame, TravelsThroughASocketUntilItsEnd) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const Frame large{7, std::string(3 << 20, 'x')};
  std::thread writer([&] {
    EXPECT_TRUE(WriteFrame(fds[0], large).ok());
    EXPECT_TRUE(WriteFrame(fds[0], {8, ""}).ok());
    EXPECT_EQ(write(fds[0], "\x10\0\0", 3), 3);  // a message cut off
    close(fds[0]);
  });
  EXPECT_EQ(**ReadFrame(fds[1]), large);
  EXPECT_EQ(**ReadFrame(fds[1]), (Frame{8, ""}));
  EXPECT_FALSE(ReadFrame(fds[1]).ok());
  writer.join();
  EXPECT_FALSE(ReadFrame(fds[1])->has_value());
  close(fds[1]);
}

BatchOrder SomeOrder() {
  BatchOrder order;
  order.work.workload = "(f32[4]) relu(0) -> f32[4]";
  order.work.target = std::string("with a zero\0inside", 18);
  order.work.incumbent_s = 1.5e-5;
  order.work.plan = {7, 123, 1.25, 1000, 2000, "warm", 1 << 20};
  order.work.candidates = {{1, 2, "direct", 3, "mr=4"}, {INT64_MAX, 0, "", 0, ""}};
  order.one_by_one = true;
  return order;
}

TEST(Messages, RoundTrip) {
  const BatchOrder order = SomeOrder();
  const auto batch = DecodeBatch(Encode(order));
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(Encode(*batch), Encode(order));
  EXPECT_EQ(batch->work.candidates[1].id, INT64_MAX);
  EXPECT_EQ(batch->work.plan, order.work.plan);
  EXPECT_TRUE(batch->one_by_one);

  const ModelWork work{std::make_shared<const std::string>("{}"), "llvm", ~0ull, {{"w", "t", "c"}}, 12, 500};
  const auto model = DecodeModel(Encode(work));
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(Encode(*model), Encode(work));
  EXPECT_EQ(model->seed, ~0ull);

  const FinalsWork final{work, {{"w", {{1, 2, "direct", 3, "mr=4"}}}, {"v", {}}}};
  const auto finals = DecodeFinals(Encode(final));
  ASSERT_TRUE(finals.ok());
  EXPECT_EQ(Encode(*finals), Encode(final));
  EXPECT_EQ(finals->Candidates().size(), 1u);

  const auto trial = DecodeTrial(Encode(Trial{3, {Outcome::kOk, "", {1e-300, 0.1}, 5, 6, 1.5}}));
  ASSERT_TRUE(trial.ok());
  EXPECT_EQ(trial->result.costs_s, (std::vector<double>{1e-300, 0.1}));
  EXPECT_EQ(trial->result.drift, 1.5);

  const auto begin = DecodeBegin(Encode(Begin{Phase::kTime, -1}));
  ASSERT_TRUE(begin.ok());
  EXPECT_EQ(begin->phase, Phase::kTime);
  EXPECT_EQ(begin->index, -1);
}

TEST(Messages, MalformedOnesAreRefusedNotRead) {
  const Frame good = Encode(SomeOrder());
  for (size_t cut = 0; cut < good.payload.size(); ++cut) {
    EXPECT_FALSE(DecodeBatch({good.kind, good.payload.substr(0, cut)}).ok()) << cut;
  }
  EXPECT_FALSE(DecodeBatch({good.kind, good.payload + "x"}).ok());
  EXPECT_FALSE(DecodeModel(good).ok());
  Rng rng(2);
  for (int i = 0; i < 2000; ++i) {  // must not crash, whatever it says
    Frame frame{good.kind, good.payload};
    frame.payload[static_cast<size_t>(rng.Below(static_cast<int64_t>(frame.payload.size())))] =
        static_cast<char>(rng.Next());
    DecodeBatch(frame).status().IgnoreError();
    DecodeTrial({static_cast<uint8_t>(MessageKind::kTrial), RandomBytes(rng, 80)}).status().IgnoreError();
  }
}

}  // namespace
}  // namespace temper::worker
