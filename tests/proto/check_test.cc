// Every field has a limit, every limit a field, and each is kept.
#include "proto/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/convert_trial.h"
#include "proto/limits.h"
#include "temper/v1/admin.pb.h"
#include "temper/v1/record.pb.h"
#include "temper/v1/tuning.pb.h"
#include "temper/v1/worker.pb.h"

namespace temper {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::Reflection;
using ::testing::HasSubstr;
using ::testing::Not;

const google::protobuf::FileDescriptor* const kFiles[] = {
    v1::Record::descriptor()->file(), v1::SyncRequest::descriptor()->file(), v1::SubmitJobRequest::descriptor()->file(),
    v1::JoinRequest::descriptor()->file()};

void AddFields(const Descriptor* message, std::vector<const FieldDescriptor*>& fields) {
  for (int i = 0; i < message->field_count(); ++i) fields.push_back(message->field(i));
  for (int i = 0; i < message->nested_type_count(); ++i) AddFields(message->nested_type(i), fields);
}

std::vector<const FieldDescriptor*> AllFields() {
  std::vector<const FieldDescriptor*> fields;
  for (const auto* file : kFiles) {
    for (int i = 0; i < file->message_type_count(); ++i) AddFields(file->message_type(i), fields);
  }
  return fields;
}

const FieldDescriptor* FieldOf(const FieldLimit& row) {
  return DescriptorPool::generated_pool()->FindFieldByName(absl::StrCat("temper.v1.", std::string(row.field)));
}

// Whether this kind of limit is for fields of this type.
bool Fits(Limit::Kind kind, const FieldDescriptor* field) {
  switch (kind) {
    case Limit::Kind::kWord:
    case Limit::Kind::kText:
      return field->type() == FieldDescriptor::TYPE_STRING;
    case Limit::Kind::kInteger:
      return field->cpp_type() == FieldDescriptor::CPPTYPE_INT32 || field->cpp_type() == FieldDescriptor::CPPTYPE_INT64;
    case Limit::Kind::kReal:
      return field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
    case Limit::Kind::kAny:
      return field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL || field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64;
    case Limit::Kind::kMessage:
      return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  }
  return false;
}

TEST(LimitsTest, EveryFieldOfEveryMessageHasOne) {
  std::set<std::string> limited;
  for (const FieldLimit& row : FieldLimits()) limited.insert(absl::StrCat("temper.v1.", std::string(row.field)));
  const std::vector<const FieldDescriptor*> fields = AllFields();
  EXPECT_GT(fields.size(), 200u);
  for (const FieldDescriptor* field : fields)
    EXPECT_TRUE(limited.contains(field->full_name())) << field->full_name() << " has no row in proto/limits.cc";
}

TEST(LimitsTest, EveryLimitHasAFieldOfItsKindAndOnlyOneRow) {
  std::set<std::string_view> seen;
  for (const FieldLimit& row : FieldLimits()) {
    EXPECT_TRUE(seen.insert(row.field).second) << row.field << " has two rows";
    const FieldDescriptor* field = FieldOf(row);
    ASSERT_NE(field, nullptr) << row.field;
    EXPECT_TRUE(Fits(row.limit.kind, field)) << row.field;
    EXPECT_TRUE(field->is_repeated() || row.limit.items == 1) << row.field << " holds one value";
    EXPECT_LE(row.limit.least, row.limit.most) << row.field;
  }
}

// A message with nothing but the field, set by `set`, and whatever else must not be 0.
std::unique_ptr<Message> With(const FieldDescriptor* field,
                              const std::function<void(Message&, const Reflection&)>& set) {
  std::unique_ptr<Message> message(MessageFactory::generated_factory()->GetPrototype(field->containing_type())->New());
  for (const FieldLimit& row : FieldLimits()) {
    const FieldDescriptor* other = FieldOf(row);
    if (other->containing_type() != field->containing_type() || row.limit.least < 1) continue;
    if (other->cpp_type() == FieldDescriptor::CPPTYPE_INT32)
      message->GetReflection()->SetInt32(message.get(), other, static_cast<int32_t>(row.limit.least));
    else
      message->GetReflection()->SetInt64(message.get(), other, row.limit.least);
  }
  set(*message, *message->GetReflection());
  return message;
}

std::unique_ptr<Message> WithText(const FieldDescriptor* field, const std::string& text) {
  return With(field, [&](Message& m, const Reflection& r) {
    field->is_repeated() ? r.AddString(&m, field, text) : r.SetString(&m, field, text);
  });
}
std::unique_ptr<Message> WithReal(const FieldDescriptor* field, double value) {
  return With(field, [&](Message& m, const Reflection& r) {
    field->is_repeated() ? r.AddDouble(&m, field, value) : r.SetDouble(&m, field, value);
  });
}
std::unique_ptr<Message> WithInteger(const FieldDescriptor* field, int64_t value) {
  return With(field, [&](Message& m, const Reflection& r) {
    const auto narrow = static_cast<int32_t>(value);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
      field->is_repeated() ? r.AddInt32(&m, field, narrow) : r.SetInt32(&m, field, narrow);
    } else {
      field->is_repeated() ? r.AddInt64(&m, field, value) : r.SetInt64(&m, field, value);
    }
  });
}

void ExpectRefused(const FieldLimit& row, const std::unique_ptr<Message>& message, const char* why) {
  const absl::Status status = CheckMessage(*message);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << row.field << ": " << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(row.field)));
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("hostile")));
}

void ExpectTaken(const FieldLimit& row, const std::unique_ptr<Message>& message) {
  EXPECT_TRUE(CheckMessage(*message).ok()) << row.field << ": " << CheckMessage(*message);
}

TEST(CheckTest, TextsAreUtf8OfALimitedLength) {
  for (const FieldLimit& row : FieldLimits()) {
    const bool word = row.limit.kind == Limit::Kind::kWord;
    if (!word && row.limit.kind != Limit::Kind::kText) continue;
    const FieldDescriptor* field = FieldOf(row);
    const auto most = static_cast<size_t>(row.limit.most);
    ExpectTaken(row, WithText(field, ""));
    ExpectTaken(row, WithText(field, "für"));
    ExpectTaken(row, WithText(field, std::string(most, 'x')));
    ExpectRefused(row, WithText(field, std::string(most + 1, 'x')), "bytes");
    ExpectRefused(row, WithText(field, "hostile \xff"), "no UTF-8");
    ExpectRefused(row, WithText(field, "hostile \xed\xa0\x80"), "no UTF-8");
    if (word) {
      ExpectRefused(row, WithText(field, "hostile \x1b[2J"), "control characters");
      ExpectRefused(row, WithText(field, "hostile \u202eelif"), "control characters");
    } else {
      ExpectTaken(row, WithText(field, "two\nlines"));
    }
  }
}

TEST(CheckTest, NumbersAreFiniteAndInRange) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const FieldLimit& row : FieldLimits()) {
    const FieldDescriptor* field = FieldOf(row);
    if (row.limit.kind == Limit::Kind::kReal) {
      ExpectTaken(row, WithReal(field, static_cast<double>(row.limit.least)));
      ExpectTaken(row, WithReal(field, static_cast<double>(row.limit.most)));
      for (const double value : {std::nan(""), kInfinity, -kInfinity}) {
        ExpectRefused(row, WithReal(field, value), "no finite number");
      }
      ExpectRefused(row, WithReal(field, -1), "it goes from");
      ExpectRefused(row, WithReal(field, 1e300), "it goes from");
    }
    if (row.limit.kind == Limit::Kind::kInteger) {
      ExpectTaken(row, WithInteger(field, row.limit.least));
      ExpectTaken(row, WithInteger(field, row.limit.most));
      ExpectRefused(row, WithInteger(field, row.limit.least - 1), "it goes from");
      const bool widest = row.limit.most == std::numeric_limits<int32_t>::max() ||
                          row.limit.most == std::numeric_limits<int64_t>::max();
      if (!widest) ExpectRefused(row, WithInteger(field, row.limit.most + 1), "it goes from");
    }
  }
}

TEST(CheckTest, ListsAreOfALimitedLength) {
  for (const FieldLimit& row : FieldLimits()) {
    const FieldDescriptor* field = FieldOf(row);
    if (!field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    const std::unique_ptr<Message> many = With(field, [&](Message& m, const Reflection& r) {
      for (int i = 0; i <= row.limit.items; ++i) r.AddMessage(&m, field);
    });
    ExpectRefused(row, many, "items");
  }
  v1::SyncRequest sync;
  for (int i = 0; i < 1024; ++i) sync.add_leases(i);
  EXPECT_TRUE(CheckMessage(sync).ok());
  sync.add_leases(1024);
  EXPECT_EQ(CheckMessage(sync).message(), "SyncRequest.leases has 1025 items; at most 1024 are taken");
}

// A worker without threads once failed every job of its server.
TEST(CheckTest, ANumberThatWasLeftOutIsZero) {
  v1::RegisterRequest request;
  request.set_slots(1);
  EXPECT_EQ(CheckMessage(request).message(), "RegisterRequest.threads is 0; it goes from 1 to 4096");
  request.set_threads(4);
  EXPECT_TRUE(CheckMessage(request).ok());
}

TEST(CheckTest, AResultNamesItsLease) {
  v1::SubmitResultsRequest request;
  request.add_results()->set_candidate(7);
  EXPECT_THAT(CheckMessage(request).message(), HasSubstr("CandidateResult.lease is 0"));
  request.mutable_results(0)->set_lease(1);
  EXPECT_TRUE(CheckMessage(request).ok());
  request.add_models();
  EXPECT_THAT(CheckMessage(request).message(), HasSubstr("ModelResult.lease is 0"));
  request.mutable_models(0)->set_lease(1);
  EXPECT_TRUE(CheckMessage(request).ok());
}

TEST(CheckTest, MessagesInsideAreChecked) {
  v1::SyncReply reply;
  v1::Batch* batch = reply.add_grants()->mutable_batch();
  batch->mutable_plan()->set_race_factor(1.3);
  EXPECT_TRUE(CheckMessage(reply).ok());
  batch->add_candidates()->set_attempt(-1);
  EXPECT_THAT(CheckMessage(reply).message(), HasSubstr("CandidateSpec.attempt"));
  v1::JobEvent event;
  (*event.mutable_outcomes())["ok"] = 3;
  EXPECT_TRUE(CheckMessage(event).ok());
  (*event.mutable_outcomes())["\n"] = 3;
  EXPECT_THAT(CheckMessage(event).message(), HasSubstr("JobEvent.OutcomesEntry.key"));
}

// What a newer peer says beside what is known here is no fault of its own.
TEST(CheckTest, UnknownFieldsArePassedOver) {
  v1::LeaveRequest request;
  request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(1000, "\xff");
  EXPECT_TRUE(CheckMessage(request).ok());
}

TEST(Convert, ASamplingPlanComesBackWhole) {
  const SamplingPlan plan{7, 123, 1.25, 1000, 2000, "warm", 1 << 20};
  EXPECT_EQ(FromWire(ToWire(plan)), plan);
  EXPECT_EQ(FromWire(v1::SamplingPlan()).repeats, SamplingPlan().repeats);
}

}  // namespace
}  // namespace temper
