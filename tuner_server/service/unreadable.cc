#include "tuner_server/service/unreadable.h"

namespace temper {
namespace {

class UnreadableCounter : public grpc::experimental::Interceptor {
 public:
  explicit UnreadableCounter(Callers& callers) : callers_(callers) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Point::POST_RECV_MESSAGE) && methods->GetRecvMessage() == nullptr)
      callers_.CountRejected("unreadable");
    methods->Proceed();
  }

 private:
  Callers& callers_;
};

class UnreadableCounters : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit UnreadableCounters(Callers& callers) : callers_(callers) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo*) override {
    return new UnreadableCounter(callers_);
  }

 private:
  Callers& callers_;
};

}  // namespace

std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> CountUnreadable(Callers& callers) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> creators;
  creators.push_back(std::make_unique<UnreadableCounters>(callers));
  return creators;
}

}  // namespace temper
