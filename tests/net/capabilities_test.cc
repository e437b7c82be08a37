// What a network must be able to do, and that one which is not is refused with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/interfaces.hpp"
#include "net/net.hpp"
#if SWITCHYARD_HAVE_OFI
#include "net/ofi_fabric.hpp"
#endif

namespace switchyard::testing {
namespace {

using ::testing::HasSubstr;

TEST(Capabilities, APluginThatLacksOneIsRefusedByItsName) {
  constexpr NetCapabilities kNone{false, false, false, false, 0};
  const NetPlugin able{"able", {true, true, true, true, 4096}, nullptr}, lame{"lame", kNone, nullptr};
  struct Row {
    NetCapabilities needs;
    const char* missing;
  };
  const Row rows[] = {{{true, false, false, false, 0}, "signals that follow their data"},
                      {{false, true, false, false, 0}, "ordered puts"},
                      {{false, false, true, false, 0}, "progress without the target"},
                      {{false, false, false, true, 0}, "access to GPU memory"},
                      {{false, false, false, false, 4096}, "messages that large"}};
  for (const Row& row : rows) {
    EXPECT_TRUE(check_capabilities(able, row.needs).ok()) << row.missing;
    const Status refused = check_capabilities(lame, row.needs);
    EXPECT_EQ(refused.code(), Code::kInvalidUsage);
    EXPECT_THAT(refused.message(), HasSubstr(text("network plugin 'lame' can't be used: it lacks ", row.missing)));
  }
  EXPECT_TRUE(check_capabilities(lame, kNone).ok());
}

#if SWITCHYARD_HAVE_OFI

Result<OfiFabric> open_on_loopback(const char* name) { return OfiFabric::open(name, choose_interfaces(true).value().at(0)); }

TEST(Capabilities, AProviderThatLacksOneIsRefusedByItsName) {
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
  // More than a provider gives, whatever it is asked for besides.
  EXPECT_THAT(refusal([](fi_info& it) { it.ep_attr->max_msg_size = ~size_t{0}; }), HasSubstr("when bytes are delivered"));
}

TEST(Capabilities, AProviderThatIsNotThereIsRefusedAndWhereToLookIsSaid) {
  EXPECT_THAT(open_on_loopback("ofi:").status().message(), HasSubstr("`switchyard doctor` lists them"));
  const std::string bogus = open_on_loopback("ofi:bogus").status().message();
  EXPECT_THAT(bogus, HasSubstr("provider 'bogus' on interface lo (127.0.0.1)"));
  EXPECT_THAT(bogus, HasSubstr("`switchyard doctor` lists what there is"));
}

// Not its other interfaces instead.
TEST(Capabilities, AnInterfaceThatAProviderDoesNotServeIsRefused) {
  const std::string message = OfiFabric::open("ofi", {"eth7", "203.0.113.7"}).status().message();
  EXPECT_THAT(message, HasSubstr("'tcp;ofi_rxm' on interface eth7 (203.0.113.7): it serves others, but not this one"));
}

TEST(Capabilities, WhereAProviderWasFoundIsSaid) {
  EXPECT_EQ(open_on_loopback("ofi").value().place(), "interface lo, address 127.0.0.1");
  const auto shared_memory = open_on_loopback("ofi:shm");
  if (!shared_memory.ok()) GTEST_SKIP() << shared_memory.status().to_string();
  EXPECT_THAT(shared_memory.value().place(), ::testing::StartsWith("device "));
}

#endif

}  // namespace
}  // namespace switchyard::testing
