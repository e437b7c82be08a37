// Multimem: one address for the same place at every member of a node. A store goes to all, a load-reduce adds up what
// all hold. NVLink switches do this in hardware; a CPU does it member by member, in rank order, so results are the same
// bits on every rank and every run.
#pragma once
#include "switchyard/device/team.hpp"
#include "switchyard/device/window.hpp"
#include "switchyard/dtype.hpp"

namespace switchyard {

template <class T>
struct MultimemPtr {
  WindowView window;
  Team team;
  uint64_t offset;

  SWITCHYARD_DEVICE MultimemPtr at(uint64_t index) const { return {window, team, offset + index * sizeof(T)}; }

  // EFFECTS  every member's place holds `value`; order it with a barrier or signal.
  SWITCHYARD_DEVICE void store(T value) const {
    for (int member = 0; member < team.num_ranks; ++member) *place(member) = value;
  }
  // The sum over the members, in rank order.
  SWITCHYARD_DEVICE T load_reduce() const {
    T sum = *place(0);
    for (int member = 1; member < team.num_ranks; ++member) sum += *place(member);
    return sum;
  }

 private:
  SWITCHYARD_DEVICE T* place(int member) const { return window.template lsa_as<T>(offset, team.world_rank(member)); }
};

// The same for rows, added up by the platform: by all lanes of a warp together.
struct MultimemRow {
  WindowView window;
  Team team;
  uint64_t offset;

  // The members' rows, in rank order.
  SWITCHYARD_DEVICE void list(const char** rows) const {
    for (int member = 0; member < team.num_ranks; ++member) rows[member] = window.lsa(offset, team.world_rank(member));
  }
  // out = the sum over the members in rank order, in FP32, rounded once. `rows` and `ones`: [members], the former to
  // work with, the latter 1.0 each. REQUIRES  dtype is kBfloat16, kFloat16 or kFloat32.
  template <class P>
  SWITCHYARD_DEVICE void load_reduce(const P& p, DType dtype, char* out, const char** rows, const float* ones,
                                     size_t num_elements) const {
    list(rows);
    p.reduce(dtype, out, rows, ones, team.num_ranks, num_elements);
  }
};

// REQUIRES  the window reaches every member of the team.
template <class T>
SWITCHYARD_DEVICE MultimemPtr<T> multimem(const WindowView& window, const Team& team, uint64_t offset) {
  return {window, team, offset};
}
SWITCHYARD_HD MultimemRow multimem_row(const WindowView& window, const Team& team, uint64_t offset) {
  return {window, team, offset};
}

}  // namespace switchyard
