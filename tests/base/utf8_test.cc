#include "base/utf8.h"

#include "gtest/gtest.h"

namespace temper {
namespace {

TEST(Utf8, TellsTextFromBytes) {
  for (const char* good : {"", "plain", "\u00e4\u20ac\U0001F600", "\u07ff\u0800\uffff\U0010ffff", "\ue000"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  for (const char* bad : {"\x80", "\xff", "\xc3", "\xc3(", "\xe2\x82", "\xc0\xaf" /* overlong */, "\xe0\x80\xaf",
                          "\xed\xa0\x80" /* surrogate */, "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
    EXPECT_FALSE(IsUtf8(bad));
    EXPECT_FALSE(IsUtf8(std::string("before ") + bad));
    EXPECT_TRUE(IsUtf8(ToUtf8(bad)));
  }
}

TEST(Utf8, CutsBetweenCharacters) {
  EXPECT_EQ(CutUtf8("abc", 3), "abc");
  EXPECT_EQ(CutUtf8("abc", 2), "ab");
  EXPECT_EQ(CutUtf8("a\u20ac", 3), "a");
  EXPECT_EQ(CutUtf8("a\u20ac", 4), "a\u20ac");
  EXPECT_EQ(CutUtf8("\u20ac", 0), "");
}

TEST(Utf8, KeepsWhatIsText) { EXPECT_EQ(ToUtf8("a\xff\u20ac\xe2\x82"), "a?\u20ac??"); }

}  // namespace
}  // namespace temper
