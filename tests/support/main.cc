#include "support/run_tests.hpp"

int main(int argc, char** argv) { return switchyard::testing::run_tests(argc, argv); }
