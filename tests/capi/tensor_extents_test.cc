// The descriptor of the C++ face holds four extents and no more.
#include <gtest/gtest.h>

#include "switchyard/ep/tensor.hpp"
#include "switchyard/status.hpp"

namespace switchyard::ep {
namespace {

TEST(TensorExtents, FourFit) {
  const Tensor tensor = Tensor::of(nullptr, DType::kInt32, {1, 2, 3, 4});
  EXPECT_EQ(tensor.shape_text(), "[1, 2, 3, 4] int32");
}

TEST(TensorExtents, MoreAreRefused) {
  try {
    static_cast<void>(Tensor::of(nullptr, DType::kInt32, {1, 2, 3, 4, 5, 6, 7, 8, 9}));
    FAIL() << "nine extents fit into four";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_STREQ(error.what(), "invalid argument: a tensor of 9 dimensions, allowed 0..4");
  }
}

}  // namespace
}  // namespace switchyard::ep
