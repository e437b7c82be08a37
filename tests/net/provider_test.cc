// Which providers of libfabric are taken, and that one which is not is refused with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/interfaces.hpp"
#include "net/ofi_fabric.hpp"
#include "net/ofi_trial.hpp"

namespace switchyard::testing {
namespace {

using ::testing::HasSubstr;

Result<OfiFabric> open_on_loopback(const char* name) { return OfiFabric::open(name, choose_interfaces(true).value().at(0)); }

TEST(Provider, OneThatLacksSomethingIsRefusedByItsName) {
  const auto fabric = open_on_loopback("ofi");
  ASSERT_TRUE(fabric.ok()) << fabric.status().to_string();
  fi_info& info = *fabric.value().info;
  ASSERT_TRUE(check_fit(info).ok()) << check_fit(info).to_string();
  const auto refusal = [&](auto change) {
    const InfoPtr changed(OfiLibrary::get().dupinfo(&info));
    change(*changed);
    const Status fits = check_fit(*changed);
    EXPECT_EQ(fits.code(), Code::kInvalidUsage);
    EXPECT_THAT(fits.message(), HasSubstr(text("libfabric provider '", info.fabric_attr->prov_name, "'")));
    return fits.message();
  };
  EXPECT_THAT(refusal([](fi_info& it) { it.domain_attr->cq_data_size = 0; }),
              HasSubstr("carries 0 bytes of completion data, needed are 4"));
  EXPECT_THAT(refusal([](fi_info& it) {
                it.domain_attr->mr_mode |= FI_MR_LOCAL;
                it.tx_attr->inject_size = 16;
              }),
              HasSubstr("injects messages of 16 bytes, needed are 32"));
  // No provider has that for such an endpoint.
  EXPECT_THAT(refusal([](fi_info& it) {
                it.ep_attr->type = FI_EP_DGRAM;
              }),
              HasSubstr("when bytes are delivered"));
}

TEST(Provider, OneThatIsNotThereIsRefusedAndWhereToLookIsSaid) {
  EXPECT_THAT(open_on_loopback("ofi:").status().message(), HasSubstr("`switchyard doctor` lists them"));
  const std::string bogus = open_on_loopback("ofi:bogus").status().message();
  EXPECT_THAT(bogus, HasSubstr("provider 'bogus' on interface lo (127.0.0.1)"));
  EXPECT_THAT(bogus, HasSubstr("`switchyard doctor` lists what there is"));
}

// libfabric's operations of one endpoint, of which a test replaces some.
struct Operations {
  explicit Operations(fid_ep& endpoint) : rma(*endpoint.rma), messages(*endpoint.msg) {
    real_rma = *endpoint.rma;
    endpoint.rma = &rma;
    endpoint.msg = &messages;
  }
  fi_ops_rma rma;
  fi_ops_msg messages;
  static inline fi_ops_rma real_rma;
};

// As one does that is named in docs/networks.md: it offers data with writes, and then refuses such a write.
TEST(Provider, OneThatDoesNotDoWhatItOffersIsRefusedBeforeAnybodyUsesIt) {
  const auto refusal = [](Code code, auto change) {
    auto from = open_on_loopback("ofi"), to = open_on_loopback("ofi");
    EXPECT_TRUE(from.ok() && to.ok()) << from.status().to_string();
    Operations operations(*from.value().endpoint);
    change(operations);
    const Status tried = try_out(from.value(), to.value(), Deadline::after_ns(2 * kSecond));
    EXPECT_EQ(tried.code(), code) << tried.to_string();
    EXPECT_THAT(tried.message(), HasSubstr("libfabric provider 'tcp;ofi_rxm' (interface lo, address 127.0.0.1)"));
    return tried.message();
  };
  EXPECT_THAT(refusal(Code::kInvalidUsage, [](Operations& its) {
                its.rma.writemsg = [](fid_ep* self, const fi_msg_rma* message, uint64_t flags) -> ssize_t {
                  return (flags & FI_REMOTE_CQ_DATA) != 0 ? -FI_EBADFLAGS : Operations::real_rma.writemsg(self, message, flags);
                };
              }),
              HasSubstr(text("it refused a write that carries data and is complete when it is delivered: ", fabric_words(FI_EBADFLAGS))));
  EXPECT_THAT(refusal(Code::kSystemError, [](Operations& its) {
                its.rma.writemsg = [](fid_ep* self, const fi_msg_rma* message, uint64_t flags) -> ssize_t {
                  return Operations::real_rma.writemsg(self, message, flags & ~FI_REMOTE_CQ_DATA);
                };
              }),
              HasSubstr("it had not delivered them in time"));
  EXPECT_THAT(refusal(Code::kSystemError, [](Operations& its) {
                its.rma.writemsg = [](fid_ep*, const fi_msg_rma*, uint64_t) -> ssize_t { return -FI_EAGAIN; };
              }),
              HasSubstr("it could not connect in time"));
  EXPECT_THAT(refusal(Code::kInvalidUsage, [](Operations& its) {
                its.messages.sendmsg = [](fid_ep*, const fi_msg*, uint64_t) -> ssize_t { return -FI_ENOSYS; };
              }),
              HasSubstr(text("it refused a message: ", fabric_words(FI_ENOSYS))));
}

TEST(Provider, OneThatDoesWhatItOffersIsTaken) {
  for (const uint64_t mr_mode : {uint64_t{0}, uint64_t{FI_MR_LOCAL}}) {  // where it must be, some writes are injected
    auto from = open_on_loopback("ofi"), to = open_on_loopback("ofi");
    ASSERT_TRUE(from.ok() && to.ok()) << from.status().to_string();
    from.value().info->domain_attr->mr_mode |= int(mr_mode);
    const Status tried = try_out(from.value(), to.value(), Deadline::after_ns(20 * kSecond));
    EXPECT_TRUE(tried.ok()) << tried.to_string();
  }
}

// Not its other interfaces instead.
TEST(Provider, AnInterfaceThatIsNotThereIsRefusedByItsName) {
  const std::string message = OfiFabric::open("ofi", {"eth7", "203.0.113.7"}).status().message();
  EXPECT_THAT(message, HasSubstr("provider 'tcp;ofi_rxm' on interface eth7 (203.0.113.7): fi_endpoint: "));
}

TEST(Provider, WhereItWasFoundIsSaid) {
  EXPECT_EQ(open_on_loopback("ofi").value().place(), "interface lo, address 127.0.0.1");
  const auto shared_memory = open_on_loopback("ofi:shm");
  if (!shared_memory.ok()) GTEST_SKIP() << shared_memory.status().to_string();
  EXPECT_THAT(shared_memory.value().place(), ::testing::StartsWith("device "));
}

}  // namespace
}  // namespace switchyard::testing
