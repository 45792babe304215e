// The GPUs' draft beside what others measured: their files, and what is made of them. No figure of theirs is needed
// here.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "bench/search/known_gpus.h"
#include "bench/search/library_times.h"
#include "bench/search/xgemm.h"
#include "gtest/gtest.h"

namespace temper {
namespace {

constexpr const char* kHead = "device,op,batch,m,n,k,ms\n";

LibraryTime Time(const std::string& line) {
  const auto times = ParseLibraryTimes(kHead + line);
  EXPECT_TRUE(times.ok()) << times.status();
  return times.ok() && times->size() == 1 ? (*times)[0] : LibraryTime();
}
double DraftMs(const std::string& line, LibraryConfigs configs = LibraryConfigs::kLibraryTiles) {
  const auto ms = LibraryDraftMs(Time(line), configs);
  EXPECT_TRUE(ms.ok()) << ms.status();
  return ms.value_or(NAN);
}

TEST(LibraryTimes, AreRead) {
  const auto times = ParseLibraryTimes(absl::StrCat(kHead, "T4,linear,1,10,20,30,0.5\r\nT4,bmm,7,10,20,30,1e-1\n\n"));
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->size(), 2u);
  const LibraryTime &linear = (*times)[0], &bmm = (*times)[1];
  EXPECT_FALSE(linear.batched);
  EXPECT_EQ(std::tuple(linear.batch, linear.rows, linear.columns, linear.length), std::tuple(1, 10, 20, 30));
  EXPECT_EQ(linear.ms, 0.5);
  EXPECT_TRUE(bmm.batched);
  EXPECT_EQ(std::tuple(bmm.batch, bmm.rows, bmm.columns, bmm.length), std::tuple(7, 10, 30, 20));
  EXPECT_EQ(bmm.device, "T4");
}

TEST(LibraryTimes, RefusesInOneLineWhatItCanNotRead) {
  const std::string of_line = "line 2: expected a device, 'linear' or 'bmm', four sides and a time";
  for (const char* line : {"T4,linear,1,10,20,30", "T4,conv,1,10,20,30,1", "T4,bmm,0,10,20,30,1", "T4,bmm,1,x,20,30,1",
                           "T4,bmm,1,10,99999999,30,1", "T4,bmm,1,10,20,30,nan", "T4,bmm,1,10,20,30,-1"})
    EXPECT_EQ(ParseLibraryTimes(std::string(kHead) + line).status().message(), of_line) << line;
  EXPECT_TRUE(absl::IsInvalidArgument(ParseLibraryTimes("").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseLibraryTimes("a,b\n").status()));
  const auto unknown = LibraryDraftMs(Time("abacus,bmm,1,10,20,30,1"), LibraryConfigs::kLibraryTiles);
  EXPECT_TRUE(absl::IsNotFound(unknown.status()));
  const auto large = LibraryDraftMs(Time("T4,bmm,1048576,1048576,1048576,1048576,1"), LibraryConfigs::kLibraryTiles);
  EXPECT_TRUE(absl::IsInvalidArgument(large.status())) << "no workload is as large";
}

TEST(LibraryTimes, DraftsGrowWithTheWork) {
  EXPECT_GT(DraftMs("V100,linear,1,2048,2048,4096,1"), 1.5 * DraftMs("V100,linear,1,2048,2048,2048,1"));
  EXPECT_GT(DraftMs("V100,bmm,512,512,64,512,1"), 1.5 * DraftMs("V100,bmm,256,512,64,512,1"));
  EXPECT_GT(DraftMs("T4,linear,1,2048,2048,2048,1"), DraftMs("V100,linear,1,2048,2048,2048,1"));
  EXPECT_GT(DraftMs("V100,linear,1,200,300,400,1"), 0);
  // The library's tiles are a whole number of thread tiles; the template has others too.
  EXPECT_LE(DraftMs("A100,bmm,64,48,64,48,1", LibraryConfigs::kAll), DraftMs("A100,bmm,64,48,64,48,1"));
}

double MeanError(const std::vector<double>& drafts, const std::vector<double>& times, double factor) {
  double sum = 0;
  for (size_t i = 0; i < drafts.size(); ++i) sum += std::abs(factor * drafts[i] / times[i] - 1);
  return sum;
}

TEST(LibraryTimes, TheFactorIsTheOneOfLeastError) {
  const std::vector<double> drafts = {1, 2, 5, 3, 0.5, 8}, times = {2, 3, 11, 2, 1.5, 15};
  const double factor = FittedFactor(drafts, times);
  for (double other = 0.05; other < 5; other += 0.01)
    EXPECT_LE(MeanError(drafts, times, factor), MeanError(drafts, times, other) + 1e-12) << other;
  EXPECT_EQ(FittedFactor({}, {}), 1);
}

TEST(LibraryTimes, HalfOfTheShapesFitOnAllDevices) {
  std::vector<LibraryTime> times;
  for (const char* device : {"T4", "L4"}) {
    for (int m = 1; m <= 101; ++m) times.push_back(Time(absl::StrCat(device, ",bmm,1,", m, ",20,30,1")));
  }
  const std::vector<bool> fits = ForFitting(times);
  ASSERT_EQ(fits.size(), 202u);
  EXPECT_EQ(std::count(fits.begin(), fits.end(), true), 2 * 51);
  EXPECT_TRUE(std::equal(fits.begin(), fits.begin() + 101, fits.begin() + 101));
  EXPECT_NE(fits[0] + 2 * fits[1] + 4 * fits[2] + 8 * fits[3] + 16 * fits[4], 0b10101) << "not in the file's order";
}

TEST(KnownGpus, AreFoundByWhatDevicesCallThemselves) {
  EXPECT_EQ((*FindKnownGpu("NVIDIA_A100_80GB_PCIe"))->memory_gbs, 1935);
  EXPECT_EQ((*FindKnownGpu("NVIDIA A100-PCIE-40GB"))->memory_gbs, 1555);
  EXPECT_EQ((*FindKnownGpu("NVIDIA_L4"))->units, 58);
  EXPECT_EQ((*FindKnownGpu("NVIDIA L40S"))->units, 142);
  EXPECT_EQ((*FindKnownGpu("NVIDIA RTX A4000"))->units, 48);
  const Target t = TargetOf(**FindKnownGpu("Tesla_T4"));
  EXPECT_EQ(t.gpu()->arch, "sm_75");
  EXPECT_EQ(t.gpu()->compute_units, 40);
  EXPECT_EQ(t.gpu()->unit_groups, 16);
  EXPECT_EQ(TargetOf(**FindKnownGpu("AMD Radeon PRO W6600")).generator, "opencl");
  EXPECT_EQ((*FindKnownGpu("AMD Instinct MI250X"))->units, 110);
  EXPECT_EQ((*FindKnownGpu("AMD_Instinct_MI250"))->units, 104);
  const std::string line(FindKnownGpu(std::string(1000, 'x')).status().message());
  EXPECT_LT(line.size(), 1000u);
}

constexpr const char* kKnobs[] = {"MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "VWM", "VWN", "SA", "SB"};

MeasuredSpace Xgemm() {
  MeasuredSpace space;
  space.name = "xgemm";
  space.device = "NVIDIA GeForce RTX 3090";
  space.kernel = "Xgemm";
  for (const char* knob : kKnobs) space.knobs.push_back({knob, {knob[0] == 'S' ? 0 : 1}});
  return space;
}

Config Chosen(int64_t mwg, int64_t nwg, int64_t mdimc, int64_t ndimc, int64_t vector, int64_t shared) {
  return Config({{"MWG", mwg},
                 {"NWG", nwg},
                 {"KWG", 32},
                 {"MDIMC", mdimc},
                 {"NDIMC", ndimc},
                 {"MDIMA", 16},
                 {"NDIMB", 16},
                 {"VWM", vector},
                 {"VWN", vector},
                 {"SA", shared},
                 {"SB", shared}});
}

TEST(Xgemm, DraftsWhatIsKnownOfGoodConfigs) {
  const auto footprint = XgemmFootprints(Xgemm());
  ASSERT_TRUE(footprint.ok()) << footprint.status();
  const auto draft = [&](const Config& c) {
    return UnderGpuSchema(footprint->of(c), *footprint->target.gpu()).draft_s;
  };
  const double good = draft(Chosen(128, 128, 16, 16, 4, 1));
  EXPECT_GT(draft(Chosen(16, 16, 16, 16, 1, 1)), 4 * good) << "a result a thread";
  EXPECT_GT(draft(Chosen(128, 128, 16, 16, 1, 1)), good) << "narrow accesses";
  EXPECT_GT(draft(Chosen(128, 128, 16, 8, 4, 0)), 1.1 * draft(Chosen(128, 128, 16, 8, 4, 1)))
      << "no shared memory, and few warps to hide what that takes";
  EXPECT_GT(draft(Chosen(128, 128, 8, 8, 4, 1)), 1.5 * good) << "256 results have no registers";
  const GpuFootprint f = footprint->of(Chosen(128, 64, 16, 8, 4, 1));
  EXPECT_EQ(f.groups, 32 * 64);
  EXPECT_EQ(f.group_threads, 128);
  EXPECT_EQ(f.accumulators, 64);
  EXPECT_EQ(f.shared_bytes, 4 * 32 * (128 + 64));
  EXPECT_EQ(footprint->of(Chosen(128, 64, 16, 8, 4, 0)).shared_bytes, 0);
}

TEST(Xgemm, RefusesOtherSpacesInOneLine) {
  MeasuredSpace other = Xgemm();
  other.kernel = "convolution";
  EXPECT_EQ(XgemmFootprints(other).status().message(), "space 'xgemm' is of kernel 'convolution', not Xgemm");
  for (size_t i = 0; i < std::size(kKnobs); ++i) {
    MeasuredSpace lacking = Xgemm();
    lacking.knobs.erase(lacking.knobs.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(XgemmFootprints(lacking).status().message(),
              absl::StrCat("space 'xgemm' lacks numbers of knob ", kKnobs[i]));
  }
  MeasuredSpace unknown = Xgemm();
  unknown.device = "abacus";
  EXPECT_TRUE(absl::IsNotFound(XgemmFootprints(unknown).status()));
  unknown.name = "gemm_MI250X";
  EXPECT_TRUE(XgemmFootprints(unknown).ok()) << "the name tells it";
  MeasuredSpace zero = Xgemm();
  zero.knobs[0].values = {0};
  EXPECT_FALSE(XgemmFootprints(zero).ok());
}

TEST(Xgemm, SearchesHaveTheDraftToBeginWith) {
  MeasuredSpace made = Xgemm();
  made.knobs = {{"MWG", {16, 32, 64, 128}},
                {"NWG", {16, 32, 64, 128}},
                {"KWG", {32}},
                {"MDIMC", {8, 16}},
                {"NDIMC", {8, 16}},
                {"MDIMA", {8, 16}},
                {"NDIMB", {8, 16}},
                {"VWM", {1, 2}},
                {"VWN", {1, 2}},
                {"SA", {0, 1}},
                {"SB", {0, 1}}};
  const auto footprint = XgemmFootprints(made);
  ASSERT_TRUE(footprint.ok()) << footprint.status();
  ConfigSpace all;
  for (const Knob& knob : made.knobs) all.Add(knob.name, knob.values);
  made.best_s = INFINITY;
  for (const Config& c : all.Enumerate(1 << 20)) {
    // As the draft says, but for one knob that it does not see.
    const double cost_s =
        UnderGpuSchema(footprint->of(c), *footprint->target.gpu()).draft_s * (c["VWM"] == 1 ? 1.2 : 1);
    made.cost_s[made.IndexOf(c)] = cost_s;
    made.best_s = std::min(made.best_s, cost_s);
  }
  const auto space = std::make_shared<const MeasuredSpace>(std::move(made));
  const TunerContext context = RegisterMeasuredSpace(space, *footprint);
  const auto first = FirstByDraft(context, 16);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->size(), 16u);
  double before = 0;
  for (const Config& c : *first) {
    const double draft_s = UnderGpuSchema(footprint->of(c), *footprint->target.gpu()).draft_s;
    EXPECT_GE(draft_s, before * (1 - 1e-6));
    before = draft_s;
  }
  const auto ratios = SearchMeasuredSpace(*space, *FindTuner("xgb"), context, {32}, 8);
  ASSERT_TRUE(ratios.ok()) << ratios.status();
  EXPECT_LT((*ratios)[0], 1.05);
}

}  // namespace
}  // namespace temper
