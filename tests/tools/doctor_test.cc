#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tool_process.hpp"

namespace switchyard::tools {
namespace {

using nlohmann::json;

json find(const json& report, const std::string& name) {
  for (const json& check : report["checks"]) {
    if (check["name"] == name) return check;
  }
  ADD_FAILURE() << "no check is called " << name;
  return json::object();
}

TEST(Doctor, PrintsJsonThatSaysWhetherEverythingRequiredIsThere) {
  const Captured doctor = run_tool({"doctor", "--json"});
  EXPECT_EQ(doctor.report.exit_code, 0);
  const json report = json::parse(doctor.output);
  EXPECT_EQ(report["ok"], true);
  for (const char* name : {"simd", "memfd", "pidfd", "libsodium"}) {
    EXPECT_EQ(find(report, name)["finding"], "ok") << name;
    EXPECT_EQ(find(report, name)["required"], true) << name;
  }
}

TEST(Doctor, NamesACommandForEverythingThatIsNotAsItShouldBe) {
  const json report = json::parse(run_tool({"doctor", "--json"}).output);
  for (const json& check : report["checks"]) {
    EXPECT_EQ(check["finding"] == "ok", check["fix"] == "") << check;
    EXPECT_NE(check["detail"], "") << check;
  }
}

TEST(Doctor, ReportsProgramsThatPathDoesNotHold) {
  const Captured doctor = run_tool({"doctor", "--json"}, {"PATH=/nonexistent"});
  EXPECT_EQ(doctor.report.exit_code, 0) << "Open MPI and Python are optional";
  const json report = json::parse(doctor.output);
  EXPECT_EQ(find(report, "Open MPI")["finding"], "missing");
  EXPECT_THAT(find(report, "Open MPI")["fix"].get<std::string>(), testing::HasSubstr("apt-get install openmpi-bin"));
  EXPECT_EQ(find(report, "python3")["finding"], "missing");
}

TEST(Doctor, PrintsOneRowForEachCheck) {
  const json report = json::parse(run_tool({"doctor", "--json"}).output);
  const std::string table = run_tool({"doctor"}).output;
  for (const json& check : report["checks"]) EXPECT_THAT(table, testing::HasSubstr(check["name"].get<std::string>()));
  EXPECT_THAT(table, testing::HasSubstr("Everything required is here."));
}

}  // namespace
}  // namespace switchyard::tools
