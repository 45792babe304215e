#include "tests/chaos/hostile_client.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <iterator>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/convert.h"
#include "temper/v1/admin.pb.h"
#include "temper/v1/tuning.pb.h"
#include "temper/v1/worker.grpc.pb.h"
#include "tests/chaos/fake_worker.h"

namespace temper {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::MethodDescriptor;
using google::protobuf::Reflection;

constexpr std::chrono::hours kUntilItEnds{1};
constexpr int64_t kMostBytes = 40 << 20;  // of the texts of a message: more than anything that is taken
constexpr char kWorkload[] = "(f32[64,256], const f32[256,512]) matmul(0,1) -> f32[64,512]; anchor=0";

struct Identity {
  std::string session, instance;
};

std::string RandomText(Rng& rng, int64_t& bytes_left) {
  static const char* const kPlausible[] = {"",
                                           "laptop",
                                           "llvm:x86-64-v3",
                                           kFakeCodegen,
                                           kWorkload,
                                           "xgb",
                                           "random",
                                           "ok",
                                           "search",
                                           "s1",
                                           "default",
                                           "vectors=1",
                                           "done",
                                           "build_failed",
                                           "{}",
                                           "\x1b[2J",
                                           "a\nb",
                                           "\xff",
                                           "\xed\xa0\x80",
                                           "nan",
                                           "{\"format\":1,\"name\":\"\",\"values\":[["};
  std::string text = kPlausible[rng.Below(std::size(kPlausible))];
  switch (rng.Below(8)) {
    case 0:  // bytes
      text.clear();
      for (int64_t n = rng.Below(300); n > 0; --n) text.push_back(static_cast<char>(rng.Next()));
      break;
    case 1:  // long
      text.assign(static_cast<size_t>(std::min(bytes_left, rng.Below(1 << 18))),
                  static_cast<char>('a' + rng.Below(26)));
      break;
    case 2:  // longer than anything that is taken
      if (rng.Below(50) == 0) text.assign(static_cast<size_t>(std::min(bytes_left, rng.Below(20 << 20))), '[');
      break;
    default:
      break;
  }
  bytes_left -= std::min(bytes_left, static_cast<int64_t>(text.size()));
  return text;
}

int64_t RandomInteger(Rng& rng) {
  static constexpr int64_t kExtremes[] = {0,
                                          1,
                                          -1,
                                          2,
                                          64,
                                          1000,
                                          1 << 20,
                                          std::numeric_limits<int32_t>::max(),
                                          std::numeric_limits<int64_t>::min(),
                                          std::numeric_limits<int64_t>::max()};
  return rng.Below(4) == 0 ? static_cast<int64_t>(rng.Next()) : kExtremes[rng.Below(std::size(kExtremes))];
}

double RandomReal(Rng& rng) {
  static constexpr double kExtremes[] = {0,
                                         1,
                                         -1,
                                         1e-300,
                                         1e300,
                                         std::numeric_limits<double>::infinity(),
                                         -std::numeric_limits<double>::infinity(),
                                         std::numeric_limits<double>::quiet_NaN()};
  return rng.Below(3) == 0 ? rng.Uniform() : kExtremes[rng.Below(std::size(kExtremes))];
}

void Scramble(Message& message, Rng& rng, const Identity& who, int64_t& bytes_left);

// One value of the field; a number of any width.
void SetField(Message& m, const FieldDescriptor* f, Rng& rng, const Identity& who, int64_t& bytes_left) {
  const Reflection& r = *m.GetReflection();
  const bool many = f->is_repeated();
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      const auto value = static_cast<int32_t>(RandomInteger(rng));
      return many ? r.AddInt32(&m, f, value) : r.SetInt32(&m, f, value);
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t value = RandomInteger(rng);
      return many ? r.AddInt64(&m, f, value) : r.SetInt64(&m, f, value);
    }
    case FieldDescriptor::CPPTYPE_UINT64:
      return r.SetUInt64(&m, f, rng.Next());
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return many ? r.AddDouble(&m, f, RandomReal(rng)) : r.SetDouble(&m, f, RandomReal(rng));
    case FieldDescriptor::CPPTYPE_BOOL:
      return r.SetBool(&m, f, rng.Below(2) == 1);
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text = RandomText(rng, bytes_left);
      if (f->name() == "session" && rng.Below(2) == 0) text = who.session;
      if (f->name() == "instance" && rng.Below(2) == 0) text = who.instance;
      return many ? r.AddString(&m, f, text) : r.SetString(&m, f, text);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Scramble(many ? *r.AddMessage(&m, f) : *r.MutableMessage(&m, f), rng, who, bytes_left);
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_ENUM:
      return;  // there are none
  }
}

void Scramble(Message& message, Rng& rng, const Identity& who, int64_t& bytes_left) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (rng.Below(3) == 0) continue;
    int64_t count = 1;
    if (field->is_repeated()) count = rng.Below(30) == 0 ? rng.Below(5000) : rng.Below(4);
    for (; count > 0; --count) SetField(message, field, rng, who, bytes_left);
  }
}

// All calls of all services.
std::vector<const MethodDescriptor*> AllMethods() {
  std::vector<const MethodDescriptor*> methods;
  for (const auto* file : {v1::SyncRequest::descriptor()->file(), v1::SubmitJobRequest::descriptor()->file(),
                           v1::JoinRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) methods.push_back(file->service(s)->method(m));
    }
  }
  return methods;
}

}  // namespace

HostileClient::HostileClient(const std::string& address, uint64_t seed)
    : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())), stub_(channel_), rng_(seed) {}

void HostileClient::Register(const std::string& key) {
  v1::RegisterRequest request;
  request.set_device_key(key);
  request.set_fingerprint("hostile");
  request.set_target(FakeTarget());
  request.set_codegen_id(kFakeCodegen);
  request.set_name("hostile");
  request.set_threads(1);
  request.set_slots(64);
  request.set_instance(absl::StrCat("0123456789abcdef0123456789abcdef", rng_.Next()));
  request.set_wire_version(kWireVersion);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  v1::RegisterReply reply;
  if (!v1::WorkerService::NewStub(channel_)->Register(&context, request, &reply).ok()) return;
  session_ = reply.session();
  instance_ = request.instance();
}

void HostileClient::Call() {
  static const std::vector<const MethodDescriptor*> methods = AllMethods();
  const MethodDescriptor* method = methods[static_cast<size_t>(rng_.Below(static_cast<int64_t>(methods.size())))];
  std::unique_ptr<Message> request(MessageFactory::generated_factory()->GetPrototype(method->input_type())->New());
  int64_t bytes_left = kMostBytes;
  Scramble(*request, rng_, {session_, instance_}, bytes_left);
  std::string bytes = request->SerializePartialAsString();
  if (rng_.Below(10) == 0 && !bytes.empty())
    bytes[static_cast<size_t>(rng_.Below(static_cast<int64_t>(bytes.size())))] ^= 0x55;
  if (rng_.Below(50) == 0) bytes.assign(static_cast<size_t>(rng_.Below(1000)), static_cast<char>(rng_.Next()));
  const std::string name = absl::StrCat("/", method->service()->full_name(), "/", method->name());
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer buffer(&slice, 1);
  method->server_streaming() ? SendForStream(name, buffer) : SendOne(name, buffer);
}

void HostileClient::SendOne(const std::string& method, const grpc::ByteBuffer& request) {
  grpc::ClientContext context;
  if (rng_.Below(20) != 0) context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  grpc::ByteBuffer reply;
  grpc::Status status;
  const auto call = stub_.PrepareUnaryCall(&context, method, request, &queue_);
  call->StartCall();
  call->Finish(&reply, &status, nullptr);
  if (Await(std::chrono::milliseconds(rng_.Below(500)))) return;
  context.TryCancel();
  Await(kUntilItEnds);
}

void HostileClient::SendForStream(const std::string& method, const grpc::ByteBuffer& request) {
  grpc::ClientContext context;
  if (rng_.Below(20) != 0) context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  grpc::Status status;
  const auto call = stub_.PrepareCall(&context, method, &queue_);
  call->StartCall(nullptr);
  Await(kUntilItEnds);
  call->WriteLast(request, {}, nullptr);
  Await(kUntilItEnds);
  // What it is sent is read once, or not at all.
  grpc::ByteBuffer message;
  if (rng_.Below(2) == 0) {
    call->Read(&message, nullptr);
    if (!Await(std::chrono::milliseconds(rng_.Below(500)))) {
      context.TryCancel();
      Await(kUntilItEnds);
    }
  }
  context.TryCancel();
  call->Finish(&status, nullptr);
  Await(kUntilItEnds);
}

bool HostileClient::Await(std::chrono::milliseconds patience) {
  void* tag;
  bool ok;
  return queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + patience) == grpc::CompletionQueue::GOT_EVENT;
}

}  // namespace temper
