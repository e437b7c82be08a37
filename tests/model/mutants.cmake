# Deliberate faults in the protocol sources. A mutant is a copy of one header in which one text is replaced; the kernels
# are compiled against it and explored in a scenario that must find the fault.
#
# switchyard_mutant(name header scenario faults old new)
#   header    relative to src/ or include/
#   scenario  of scenarios.cc
#   faults    that count as finding it, separated by |; a rank that notices that something is wrong and fails the
#             operation writes words that are declared constant, which is a bad access
#   old, new  texts; old must occur exactly once, or the configure step fails: then the source has changed, and the mutant
#             has to be looked at again.

function(switchyard_require_once header old)
  file(READ ${header} source)
  string(FIND "${source}" "${old}" first)
  string(FIND "${source}" "${old}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "${header} is to contain this text exactly once, for tests/model; it has changed:\n${old}")
  endif()
  set_property(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
endfunction()

set(SWITCHYARD_MUTANTS "")      # objects
set(SWITCHYARD_MUTANT_LIST "")  # what the test includes

function(switchyard_mutant name header scenario faults old new)
  set(path ${CMAKE_SOURCE_DIR}/src/${header})
  if(NOT EXISTS ${path})
    set(path ${CMAKE_SOURCE_DIR}/include/${header})
  endif()
  switchyard_require_once(${path} "${old}")
  file(READ ${path} source)
  string(REPLACE "${old}" "${new}" mutated "${source}")
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/mutants/${name})
  switchyard_write_if_different(${folder}/${header} "${mutated}")

  set(parts kRuntime)
  if(header MATCHES "^ep/ll_")
    set(parts kLowLatency)
  elseif(header MATCHES "^coll/(greetings|pipeline)")
    set(parts kCollectives)
  elseif(header MATCHES "^ep/(ht|rail)_|^coll/notices")
    set(parts kHighThroughput)
  elseif(header MATCHES "^ep/")
    set(parts kLowLatency|kHighThroughput)
  endif()

  list(LENGTH SWITCHYARD_MUTANTS num_mutants)
  math(EXPR tag "${num_mutants} + 1")
  add_library(model_mutant_${name} OBJECT mutant.cc)
  target_include_directories(model_mutant_${name} BEFORE PRIVATE ${folder})
  target_include_directories(model_mutant_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(model_mutant_${name} PRIVATE switchyard_flags)
  target_compile_definitions(model_mutant_${name} PRIVATE SWITCHYARD_MUTANT_FUNCTION=mutant_${name}
    SWITCHYARD_MUTANT_TAG=${tag} SWITCHYARD_MUTANT_PARTS=${parts})
  target_compile_options(model_mutant_${name} PRIVATE -O0 -g0 -w)  # there are many, and they are not to be fixed

  set(SWITCHYARD_MUTANTS ${SWITCHYARD_MUTANTS} $<TARGET_OBJECTS:model_mutant_${name}> PARENT_SCOPE)
  string(APPEND SWITCHYARD_MUTANT_LIST "SWITCHYARD_MUTANT(${name}, \"${scenario}\", \"${faults}\")\n")
  set(SWITCHYARD_MUTANT_LIST "${SWITCHYARD_MUTANT_LIST}" PARENT_SCOPE)
endfunction()

# So that an unchanged copy is not compiled again.
function(switchyard_write_if_different file content)
  if(EXISTS ${file})
    file(READ ${file} present)
    if(present STREQUAL content)
      return()
    endif()
  endif()
  file(WRITE ${file} "${content}")
endfunction()

# --- arrival: rows are there before they are told ---

switchyard_mutant(arrival_relaxed ep/peer_context.hpp ExpertMajorThroughInboxes "data race"
  [[p.store_release(&line->arrival, tag);]] [[p.store_relaxed(&line->arrival, tag);]])
switchyard_mutant(arrival_read_relaxed ep/peer_context.hpp ExpertMajorThroughInboxes "data race"
  [[Seen seen = judge(p.load_acquire(word));]] [[Seen seen = judge(p.load_relaxed(word));]])
switchyard_mutant(arrival_told_with_the_plan ep/ll_dispatch.hpp ExpertMajorThroughInboxes "data race|assertion"
  [[if (p_.read(&plan_[at_.num_to(peer)]) == 0 && !c_.masked(peer)) tell_arrival(peer, 0);]]
  [[if (!c_.masked(peer)) tell_arrival(peer, uint32_t(p_.read(&plan_[at_.num_to(peer)])));]])
switchyard_mutant(rows_not_drained ep/ll_dispatch.hpp ExpertMajorThroughInboxes "data race"
  [[    p_.drain();
    for (int k = 0; k < c_.op.topk; ++k) count_sent(token_ * c_.op.topk + k);]]
  [[    for (int k = 0; k < c_.op.topk; ++k) count_sent(token_ * c_.op.topk + k);]])
switchyard_mutant(rows_counted_before_push ep/ll_dispatch.hpp ExpertMajorThroughInboxes "data race"
  [[    p_.push(row.token, token_places, num_tokens, c_.op.token_bytes);
    if (c_.op.scale_bytes) p_.push(row.scale, scale_places, num_scales, c_.op.scale_bytes);
    SWITCHYARD_KERNEL_FAILPOINT("ll.dispatch.row_pushed");
    p_.drain();
    for (int k = 0; k < c_.op.topk; ++k) count_sent(token_ * c_.op.topk + k);]]
  [[    for (int k = 0; k < c_.op.topk; ++k) count_sent(token_ * c_.op.topk + k);
    p_.push(row.token, token_places, num_tokens, c_.op.token_bytes);
    p_.drain();]])
switchyard_mutant(arrival_of_an_earlier_epoch ep/peer_context.hpp ExpertMajorThroughInboxes "data race|assertion|deadlock"
  [[if (seen == want || (at_least && seen > want)) return Seen::kWanted;]]
  [[if (seen == want || seen + kNumBanks == want || (at_least && seen > want)) return Seen::kWanted;]])
switchyard_mutant(arrival_of_any_epoch ep/peer_context.hpp DispatchesThroughInboxes "data race|assertion|deadlock"
  [[if (seen == want || (at_least && seen > want)) return Seen::kWanted;]] [[if (seen != 0) return Seen::kWanted;]])

# --- banks: used again only when they are free ---

switchyard_mutant(bank_not_awaited ep/ll_dispatch.hpp TwoDispatchesInFlight
  "data race|assertion|bad access"
  [[      if (c_.bank_free(next_peer_) == Await::kNotYet) return false;]] [[]])
switchyard_mutant(bank_awaited_an_epoch_too_little ep/ll_context.hpp TwoDispatchesInFlight
  "data race|assertion|bad access"
  [[const uint64_t previous = tag - kNumBanks;]] [[const uint64_t previous = tag - kNumBanks - 1;]])
switchyard_mutant(done_before_rows_are_unpacked ep/ll_dispatch.hpp TwoDispatchesInFlight "data race"
  [[    ++source_to_scan_;]] [[    ++source_to_scan_;
    p_.store_release(&c_.told(source)->done, c_.tag);]])
switchyard_mutant(done_relaxed ep/ll_kernel.hpp TwoDispatchesInFlight "data race"
  [[c.p.store_release(&c.told(peer)->done, c.tag);]] [[c.p.store_relaxed(&c.told(peer)->done, c.tag);]])
switchyard_mutant(done_never_told ep/ll_kernel.hpp TwoDispatchesInFlight "deadlock"
  [[if (!c.masked(peer)) c.p.store_release(&c.told(peer)->done, c.tag);]] [[]])
switchyard_mutant(unpacking_not_drained ep/ll_dispatch.hpp TwoDispatchesInFlight "data race"
  [[      p_.drain();
      done_ = true;]] [[      done_ = true;]])
switchyard_mutant(wrong_bank_in_receive_half ep/ll_context.hpp TwoDispatchesInFlight
  "data race|assertion|deadlock|bad access"
  [[op(operation) {}]] [[op(operation) { bank = int((tag + (op.part == LlPart::kReceive ? 1 : 0)) % kNumBanks); }]])
switchyard_mutant(rows_of_the_other_bank ep/ll_dispatch.hpp ExpertMajorThroughInboxes "data race|assertion"
  [[return c_.inbox(c_.rank(), source) + message * c_.message().stride(payload);]]
  [[return c_.group().payload[c_.rank()] + c_.group().layout.inbox(1 - c_.bank, source) +
           message * c_.message().stride(payload);]])
switchyard_mutant(staged_tag_of_the_wrong_slot ep/ll_context.hpp TwoDispatchesInFlight
  "data race|assertion|deadlock"
  [[p.load_relaxed(&state.staged_tag[op.slot])]] [[p.load_relaxed(&state.staged_tag[1 - op.slot])]])

# --- in place: nobody writes an output, or a result, that its owner still uses ---

switchyard_mutant(consent_not_awaited ep/ll_dispatch.hpp ExpertMajorInPlace "data race|assertion"
  [[      if (consent == Await::kNotYet) return go_on_without_consent();]] [[]])
switchyard_mutant(in_place_without_consent ep/ll_dispatch.hpp StagedInPlaceWithoutConsent "data race|assertion"
  [[if (c_.op.part != LlPart::kSend || p_.now_ns() - consented_ns_ < kConsentPatienceNs) return false;]]
  [[if (c_.op.part != LlPart::kSend || p_.now_ns() - consented_ns_ < kConsentPatienceNs) return false;
    in_place_ = true;]])
switchyard_mutant(consent_before_counts ep/ll_dispatch.hpp ExpertMajorInPlace "data race"
  [[    if (c_.op.expert_major) {
      int32_t* counts]] [[    p_.store_release(&c_.told(peer)->consent, c_.tag);
    if (c_.op.expert_major) {
      int32_t* counts]])
switchyard_mutant(consent_relaxed ep/ll_dispatch.hpp ExpertMajorInPlace "data race"
  [[p_.store_release(&line->consent, c_.tag);]] [[p_.store_relaxed(&line->consent, c_.tag);]])
switchyard_mutant(readers_not_awaited ep/ll_kernel.hpp CombinesInPlace "data race"
  [[if (op.kind == LlKind::kCombine && op.in_place && p.warp_idx() == 0) {]] [[if (op.topk == 0) {]])
switchyard_mutant(results_offered_before_the_line ep/ll_combine.hpp ExpertMajorInPlace "data race"
  [[    PeerLine* line = c_.told(reader);
    if (p_.lane() == 0) {]] [[    PeerLine* line = c_.told(reader);
    c_.tell_arrival(reader, uint32_t(num_received(reader)), kRowsInPlace);
    if (p_.lane() == 0) {]])

# --- combine ---

switchyard_mutant(outbox_not_awaited ep/ll_combine.hpp TwoCombinesInFlight
  "data race|assertion|bad access"
  [[      if (c_.bank_free(next_peer_) == Await::kNotYet) return false;]] [[]])
switchyard_mutant(results_not_drained ep/ll_combine.hpp ExpertMajorThroughInboxes "data race"
  [[    p_.drain();
    const int goal]] [[    const int goal]])
switchyard_mutant(results_told_before_they_are_staged ep/ll_combine.hpp ExpertMajorThroughInboxes
  "data race|assertion"
  [[else if (num_received(reader) == 0) tell_arrival(reader, 0);]]
  [[else tell_arrival(reader, num_received(reader));]])
switchyard_mutant(sums_not_drained ep/ll_combine.hpp TwoCombinesInFlight "data race"
  [[    p_.drain();
    stage_ = Stage::kDone;]] [[    stage_ = Stage::kDone;]])
switchyard_mutant(sums_without_waiting ep/ll_combine.hpp ExpertMajorThroughInboxes "data race|assertion"
  [[    if (arrival == Await::kNotYet) return false;]] [[]])

# --- several warps of one rank ---

switchyard_mutant(plan_published_before_it_is_made ep/ll_dispatch.hpp TwoWarpsAlone "data race|bad access"
  [[    build_plan(c_, /*once_per_rank=*/true);]]
  [[    p_.store_release(&c_.bank_state().plan_ready, kPlanInbox);
    build_plan(c_, /*once_per_rank=*/true);]])
switchyard_mutant(plan_published_relaxed ep/ll_dispatch.hpp TwoWarpsAlone "data race"
  [[p_.store_release(&c_.bank_state().plan_ready, in_place_ ? kPlanInPlace : kPlanInbox);]]
  [[p_.store_relaxed(&c_.bank_state().plan_ready, in_place_ ? kPlanInPlace : kPlanInbox);]])
switchyard_mutant(rows_counted_relaxed ep/ll_dispatch.hpp TwoWarpsAlone "data race"
  [[if (p_.fetch_add(&c_.rows_sent(dest), 1) + 1 == uint64_t(goal)) {]]
  [[if (p_.fetch_add_relaxed(&c_.rows_sent(dest), 1) + 1 == uint64_t(goal)) {]])
switchyard_mutant(scan_published_relaxed ep/ll_dispatch.hpp TwoWarpsAlone "data race"
  [[p_.store_release(&c_.bank_state().num_scanned, uint64_t(source_to_scan_));]]
  [[p_.store_relaxed(&c_.bank_state().num_scanned, uint64_t(source_to_scan_));]])
switchyard_mutant(sums_published_relaxed ep/ll_combine.hpp TwoWarpsAlone "data race"
  [[p_.store_release(&c_.bank_state().all_arrived, uint64_t{1});]]
  [[p_.store_relaxed(&c_.bank_state().all_arrived, uint64_t{1});]])
switchyard_mutant(first_warp_closes ep/ll_kernel.hpp TwoWarpsAlone "data race|deadlock|assertion"
  [[if (c.p.fetch_add(&bank.warps_finished, 1) + 1 != uint64_t(c.p.num_warps())) return;]]
  [[if (c.p.fetch_add(&bank.warps_finished, 1) != 0) return;]])

# --- a rank that is given up on ---

switchyard_mutant(expulsion_not_told ep/peer_context.hpp SuspectedRank "deadlock"
  [[      if (!expelled_by(peer) && !came_back) tell(peer, &PeerLine::expelled, tag);]]
  [[      (void)came_back;]])
switchyard_mutant(rows_of_a_rank_that_was_given_up ep/ll_dispatch.hpp SuspectedRank "data race|assertion"
  [[uint32_t num_rows = arrival == Await::kReady ? p_.read(&line->num_rows) : 0;]]
  [[uint32_t num_rows = p_.read(&line->num_rows);]])
switchyard_mutant(given_up_without_a_mask ep/peer_context.hpp SuspectedRank "data race|assertion|deadlock"
  [[      p.store_relaxed(&group_.mask[peer], 0);]] [[]])

# --- high throughput: on one node ---

switchyard_mutant(ht_consent_not_awaited ep/ht_dispatch.hpp FlatDispatchesInPlace "data race|assertion"
  [[open_ = c_.failed() || c_.follows_its_plan() || c_.all_consented(next_peer_);]]
  [[open_ = c_.all_consented(next_peer_) || told_;]])
switchyard_mutant(ht_consent_not_awaited_after_any_update ep/ht_context.hpp FlatDispatches "data race|assertion"
  [[plan_tag(p, op) + 1 == tag;]] [[plan_tag(p, op) < tag;]])
switchyard_mutant(ht_consent_not_awaited_of_outputs ep/ht_context.hpp UpdatesAndUseInPlace "data race|assertion|bad access"
  [[op.kind == HtKind::kDispatch && op.token_window_id == 0 && group()]] [[op.kind == HtKind::kDispatch && group()]])
switchyard_mutant(ht_consent_relaxed ep/ht_context.hpp FlatDispatchesInPlace "data race"
  [[p.store_release(&line->consent, tag);]] [[p.store_relaxed(&line->consent, tag);]])
switchyard_mutant(ht_operation_told_again ep/ht_context.hpp FlatThroughInboxes "data race"
  [[if (p.lane() == 0) p.write(&line->flags, flags);]]
  [[p.write(&line->flags, flags);
    p.write(&line->about, about);]])
switchyard_mutant(ht_rows_not_drained ep/ht_dispatch.hpp FlatThroughInboxes "data race"
  [[      p_.drain();
      SWITCHYARD_KERNEL_FAILPOINT("ht.dispatch.before_arrival");]] [[]])
switchyard_mutant(ht_arrival_relaxed ep/ht_context.hpp FlatThroughInboxes "data race"
  [[p.store_release(&line->arrival, tag);]] [[p.store_relaxed(&line->arrival, tag);]])
switchyard_mutant(ht_place_in_the_wrong_window ep/ht_dispatch.hpp FlatInPlace "data race|assertion|bad access"
  [[return c_.group().windows.find(c_.op.token_window_id)[peer] + p_.read(&c_.heard(peer)->token_offset);]]
  [[return c_.group().windows.find(c_.op.token_window_id)[peer] + c_.op.token_window_offset;]])
switchyard_mutant(ht_results_not_drained ep/ht_combine.hpp FlatCombines "data race"
  [[    p_.drain();
    SWITCHYARD_KERNEL_FAILPOINT("ht.combine.before_offer");]] [[]])
switchyard_mutant(ht_results_not_awaited ep/ht_combine.hpp FlatCombines "data race|assertion"
  [[    if (!results_.done()) return false;
    if (token_ < c_.op.num_tokens) return reduce_token();]]
  [[    if (token_ < c_.op.num_tokens) return reduce_token();]])
switchyard_mutant(ht_readers_not_awaited ep/ht_combine.hpp FlatCombinesInPlace "data race"
  [[if (c_.await(next_peer_, &c_.heard(next_peer_)->done, c_.tag, Phase::kReaders, true) == Await::kNotYet) return false;]]
  [[]])
switchyard_mutant(ht_outbox_not_awaited ep/ht_combine.hpp FlatCombines "data race|assertion"
  [[if (p_.load_relaxed(&c_.group().ht_state().offered) != 0 && !gate_.done()) return false;]] [[]])
switchyard_mutant(ht_done_before_the_sums ep/ht_combine.hpp FlatCombinesInPlace "data race"
  [[if (!partial_.done() || !reduce_.done()) return false;]] [[if (!partial_.done()) return false;]])
switchyard_mutant(ht_done_relaxed ep/ht_combine.hpp FlatCombinesInPlace "data race"
  [[c_.p.store_release(&c_.told(peer)->done, c_.tag);]] [[c_.p.store_relaxed(&c_.told(peer)->done, c_.tag);]])

# --- updates ---

switchyard_mutant(message_relaxed ep/ht_route.hpp Updates "data race"
  [[return c_.p.store_release(&(c_.told(peer)->*word_), c_.tag);]]
  [[return c_.p.store_relaxed(&(c_.told(peer)->*word_), c_.tag);]])
switchyard_mutant(notices_published_before_all_are_written coll/notices.hpp Updates "data race|assertion"
  [[      if (auto* const box = peers_.box_for(rank)) write(rank, box);
]]
  [[      if (auto* const box = peers_.box_for(rank)) {
        write(rank, box);
        peers_.publish(rank);
      }
]])
switchyard_mutant(notice_of_the_last_rank_not_awaited coll/notices.hpp UpdatesThreeRanks "data race|assertion"
  [[for (; next_ < peers_.num_ranks(); ++next_) {]] [[for (; next_ < peers_.num_ranks() - 1; ++next_) {]])
switchyard_mutant(places_read_with_the_counts ep/ht_route.hpp UpdatesWithMasks "data race|assertion"
  [[HtBoard::kPlaces, &PeerLine::arrival,]] [[HtBoard::kPlaces, &PeerLine::consent,]])
switchyard_mutant(kept_read_with_the_counts ep/ht_route.hpp UpdatesThatDrop "data race|assertion"
  [[HtBoard::kKept, &PeerLine::done,]] [[HtBoard::kKept, &PeerLine::consent,]])
switchyard_mutant(places_of_zones_after_their_message ep/ht_route.hpp UpdatesOfZonesWithMasks "data race|assertion"
  [[        if (box != nullptr) p_.write(box + HtBoard::expert(local), int32_t(within_budget(end)));]]
  [[        if (local == 0) places_.peers().publish(source);
        if (box != nullptr) p_.write(box + HtBoard::expert(local), int32_t(within_budget(end)));]])
switchyard_mutant(table_given_back_before_it_is_read ep/ht_route.hpp RailOfTables "data race"
  [[      take_row(idx, int(receiver.num_taken()), reinterpret_cast<const int32_t*>(receiver.row()));
      receiver.taken();]]
  [[      const int row_idx = int(receiver.num_taken());
      const char* row = receiver.row();
      receiver.taken();
      take_row(idx, row_idx, reinterpret_cast<const int32_t*>(row));]])

# --- rails ---

switchyard_mutant(rail_told_before_the_data ep/rail_stream.hpp TwoNodes "data race|assertion"
  [[    if (!c_.put(peer_, c_.group().payload_id,]]
  [[    static_cast<void>(c_.tell_remote(peer_, c_.bank, &PeerLine::rail_sent, RailStamp::of(c_.tag, end_.num_sent, last)));
    if (!c_.put(peer_, c_.group().payload_id,]])
switchyard_mutant(rail_rows_not_drained ep/rail_stream.hpp TwoNodes "data race"
  [[    c_.p.drain();
    const HtLayout& layout]] [[    const HtLayout& layout]])
switchyard_mutant(rail_of_the_wrong_chunk ep/rail_stream.hpp RailOfRows "data race|assertion"
  [[const uint64_t offset = ring_.offset(end_.num_sent);]] [[const uint64_t offset = ring_.offset(end_.num_packed);]])
switchyard_mutant(rail_end_lost ep/rail_stream.hpp TwoNodes "deadlock"
  [[RailStamp::of(c_.tag, end_.num_sent, last, last && end_.lacking)]] [[RailStamp::of(c_.tag, end_.num_sent, false)]])
switchyard_mutant(rail_has_room_for_one_too_many ep/rail_stream.hpp RailOfRows "data race|assertion"
  [[if (end_.num_packed - end_.num_taken < ring_.capacity()) return Await::kReady;]]
  [[if (end_.num_packed - end_.num_taken <= ring_.capacity()) return Await::kReady;]])
switchyard_mutant(rail_awaits_one_too_few ep/rail_stream.hpp RailOfRows "data race|assertion"
  [[return await_taken(end_.num_packed - ring_.capacity() + 1);]] [[return await_taken(end_.num_packed - ring_.capacity());]])
switchyard_mutant(rail_rows_of_any_epoch ep/rail_stream.hpp TwoNodesCombines "data race|assertion|bad access"
  [[      if (RailStamp::epoch(word) != epoch) return RailStamp::epoch(word) > epoch ? Seen::kTooLate : Seen::kNotYet;
      end_.num_there]] [[      if (epoch == 0) return Seen::kNotYet;
      end_.num_there]])
switchyard_mutant(rail_taken_tells_one_too_many ep/rail_stream.hpp RailOfRows "data race|assertion"
  [[RailStamp::of(c_.tag, end_.num_taken, false)]] [[RailStamp::of(c_.tag, end_.num_taken + 1, false)]])
switchyard_mutant(rail_taken_tells_whole_chunks_only ep/rail_stream.hpp RailOfPairs "deadlock"
  [[if (end_.num_taken % ring_.rows_per_chunk() != 0 && !over()) return;]]
  [[if (end_.num_taken % ring_.rows_per_chunk() != 0) return;]])
switchyard_mutant(row_given_back_before_it_is_pushed ep/ht_dispatch.hpp RailOfRows "data race"
  [[      push_row(idx, source, int(receiver.num_taken()), receiver.row());
      SWITCHYARD_KERNEL_FAILPOINT("ht.forward.row_pushed");
      receiver.taken();]]
  [[      const int row_idx = int(receiver.num_taken());
      const char* row = receiver.row();
      receiver.taken();
      push_row(idx, source, row_idx, row);]])
switchyard_mutant(row_given_back_before_it_is_drained ep/ht_dispatch.hpp RailOfRows "data race"
  [[    p_.drain();  // before the row is given back]] [[]])
switchyard_mutant(sum_given_back_before_it_is_drained ep/ht_combine.hpp RailOfSums "data race"
  [[      p_.drain();  // before the sum is given back]] [[]])
switchyard_mutant(sums_not_awaited_before_the_next_ones ep/ht_combine.hpp TwoNodesCombinesInPlace "data race|assertion|bad access"
  [[    if (sender.drained() == Await::kNotYet) return false;]] [[]])
switchyard_mutant(sum_not_awaited ep/ht_combine.hpp SumsBothWays "data race|assertion"
  [[if (node >= 0 && stream_from(node).ready() == Await::kNotYet) return false;]] [[]])
switchyard_mutant(told_line_not_kept ep/peer_context.hpp TwoNodesCombines "data race|assertion|bad access"
  [[      p.write(&(copy->*word), value);]] [[]])
switchyard_mutant(forwarded_relaxed ep/ht_context.hpp Forwarded "data race"
  [[p.store_release(&line->forwarded, tag);]] [[p.store_relaxed(&line->forwarded, tag);]])
switchyard_mutant(forwarded_with_the_first_row ep/ht_dispatch.hpp Forwarded "data race|assertion"
  [[    if (ready == Await::kReady && !receiver.over() && receiver.num_taken() < expected) {]]
  [[    if (ready == Await::kReady && !receiver.over() && receiver.num_taken() < expected) {
      for (int peer = c_.group().first_local(); peer < c_.group().end_local(); ++peer) c_.tell_arrival_of(source, peer, 0);]])

# --- collectives ---

switchyard_mutant(greeting_relaxed coll/greetings.hpp MeetingsOfTwo "data race"
  [[return p_.store_release(&box_for(rank)->epoch, epoch_ + 1);]] [[return p_.store_relaxed(&box_for(rank)->epoch, epoch_ + 1);]])
switchyard_mutant(greeting_read_relaxed coll/greetings.hpp MeetingsOfTwo "data race"
  [[rolling_at_least(p_.load_acquire(&box_of(rank)->epoch), epoch_ + 1)]]
  [[rolling_at_least(p_.load_relaxed(&box_of(rank)->epoch), epoch_ + 1)]])
switchyard_mutant(greeting_of_an_earlier_meeting coll/greetings.hpp MeetingsOfTwo "data race|assertion"
  [[rolling_at_least(p_.load_acquire(&box_of(rank)->epoch), epoch_ + 1)]]
  [[rolling_at_least(p_.load_acquire(&box_of(rank)->epoch), epoch_ - 1)]])
switchyard_mutant(greetings_in_one_bank coll/greetings.hpp MeetingsOfTwo "data race|assertion"
  [[near(int sender) const { return v_.layout.greeting(bank(epoch_), sender); }]]
  [[near(int sender) const { return v_.layout.greeting(0, sender); }]])
switchyard_mutant(stage_not_drained_before_a_greeting coll/pipeline.hpp MeetingsOfTwo "data race"
  [[    p.drain();
    const bool everybody]] [[    const bool everybody]])
switchyard_mutant(far_greetings_in_the_bank_of_the_step coll/greetings.hpp AnnouncementsBetweenNodes "data race|assertion"
  [[        turn_(platform.load_relaxed(&view.words[view.layout.turn_word()])),]]
  [[        turn_(epoch),]])
switchyard_mutant(far_greeting_of_an_earlier_turn coll/greetings.hpp AnnouncementsBetweenNodes "data race|assertion"
  [[arrival_signal(rank)), turn_ + 1)) return Await::kReady;]] [[arrival_signal(rank)), turn_)) return Await::kReady;]])

# --- device API ---

switchyard_mutant(signal_before_the_copy switchyard/device/gin.hpp Puts "data race|assertion"
  [[      p_.copy_together(coop, to.lsa(to_offset, peer), from.local(from_offset), num_bytes);
      p_.drain();
      coop.sync();
      if (coop.thread_rank() == 0) {
        add_signal(peer, remote);]]
  [[      if (coop.thread_rank() == 0) add_signal(peer, remote);
      p_.copy_together(coop, to.lsa(to_offset, peer), from.local(from_offset), num_bytes);
      p_.drain();
      if (coop.thread_rank() == 0) {]])
switchyard_mutant(put_not_drained switchyard/device/gin.hpp Puts "data race"
  [[      p_.drain();
      coop.sync();]] [[      coop.sync();]])
switchyard_mutant(signal_relaxed switchyard/device/gin.hpp Puts "data race"
  [[p_.add_release_thread(comm_.resources]] [[p_.fetch_add_relaxed(comm_.resources]])
switchyard_mutant(signal_read_relaxed switchyard/device/gin.hpp Puts "data race"
  [[return p_.load_acquire(comm_.resources]] [[return p_.load_relaxed(comm_.resources]])
switchyard_mutant(value_after_its_signal switchyard/device/gin.hpp PutsOfValues "assertion"
  [[      p_.store_relaxed_thread(to.template lsa_as<T>(to_offset, peer), value);
      add_signal(peer, remote);]]
  [[      add_signal(peer, remote);
      p_.store_relaxed_thread(to.template lsa_as<T>(to_offset, peer), value);]])
switchyard_mutant(barrier_arrival_relaxed switchyard/device/barrier.hpp BarrierOfTwo "data race"
  [[p_.store_release(inbox(world_rank, comm_.world.rank), epoch);]]
  [[p_.store_relaxed(inbox(world_rank, comm_.world.rank), epoch);]])
switchyard_mutant(barrier_read_relaxed switchyard/device/barrier.hpp BarrierOfTwo "data race"
  [[rolling_at_least(p_.load_acquire(inbox(]] [[rolling_at_least(p_.load_relaxed(inbox(]])
switchyard_mutant(barrier_epoch_not_advanced switchyard/device/barrier.hpp BarrierOfTwo "data race|assertion"
  [[p_.store_relaxed(&comm_.barrier_epochs[index_], epoch);]] [[(void)epoch;]])
switchyard_mutant(barrier_of_the_last_epoch switchyard/device/barrier.hpp BarrierOfTwo "data race|assertion"
  [[const BarrierResult result = wait_for_members(epoch);]] [[const BarrierResult result = wait_for_members(epoch - 1);]])
switchyard_mutant(barrier_forgets_a_member switchyard/device/barrier.hpp BarrierOfThree "data race|assertion"
  [[      return member == comm_.lsa.num_ranks;]]
  [[      return member + 1 >= comm_.lsa.num_ranks;]])
switchyard_mutant(node_let_go_before_the_others_came switchyard/device/barrier.hpp WorldBarriersBetweenUnevenNodes "data race|assertion"
  [[let_go(meet([](int /*node*/, int local) { return local == 0; }))]] [[let_go(BarrierResult::kOk)]])
switchyard_mutant(node_does_not_wait_to_be_let_go switchyard/device/barrier.hpp WorldBarriersBetweenUnevenNodes "data race|assertion"
  [[return heard(first, epoch); });]] [[return heard(first, epoch - 1); });]])
switchyard_mutant(verdict_after_the_release switchyard/device/barrier.hpp WorldBarriersBetweenUnevenNodes "data race"
  [[      if (p_.lane() == 0) p_.write(verdict(rank), uint64_t(result) | uint64_t(missing_ + 1) << 32);
      arrive(rank, epoch);]]
  [[      arrive(rank, epoch);
      p_.write(verdict(rank), uint64_t(result) | uint64_t(missing_ + 1) << 32);]])

# --- descriptor rings ---

switchyard_mutant(head_stored_relaxed switchyard/device/proxy_ring.hpp RingOfTwo "data race"
  [[p.store_release_thread(&slot.head,]] [[p.store_relaxed_thread(&slot.head,]])
switchyard_mutant(head_read_relaxed switchyard/device/proxy_ring.hpp RingOfTwo "data race"
  [[p.load_acquire_thread(&slot.head)]] [[p.load_relaxed_thread(&slot.head)]])
switchyard_mutant(slot_written_after_its_head switchyard/device/proxy_ring.hpp RingOfTwo "data race|assertion"
  [[      p.write(&slot.windows, what.slots[i].windows);
      // release; pairs with the acquire in take()
      p.store_release_thread(&slot.head, what.slots[i].head | lap_bit(ticket + uint64_t(i)));]]
  [[      p.store_release_thread(&slot.head, what.slots[i].head | lap_bit(ticket + uint64_t(i)));
      p.write(&slot.windows, what.slots[i].windows);]])
switchyard_mutant(taken_stored_relaxed switchyard/device/proxy_ring.hpp RingOfTwo "data race"
  [[p.store_release_thread(&taken, ticket);]] [[p.store_relaxed_thread(&taken, ticket);]])
switchyard_mutant(taken_read_relaxed switchyard/device/proxy_ring.hpp RingOfTwo "data race"
  [[now_taken = p.load_acquire_thread(&taken);]] [[now_taken = p.load_relaxed_thread(&taken);]])
switchyard_mutant(seen_taken_stored_relaxed switchyard/device/proxy_ring.hpp TwoProducers "data race"
  [[p.store_release_thread(&seen_taken, now_taken);]] [[p.store_relaxed_thread(&seen_taken, now_taken);]])
switchyard_mutant(seen_taken_read_relaxed switchyard/device/proxy_ring.hpp TwoProducers "data race"
  [[p.load_acquire_thread(&seen_taken);]] [[p.load_relaxed_thread(&seen_taken);]])
switchyard_mutant(done_with_one_more_than_was_read switchyard/device/proxy_ring.hpp RingOfTwo "data race|assertion"
  [[p.store_release_thread(&taken, ticket);]] [[p.store_release_thread(&taken, ticket + 1);]])
switchyard_mutant(lap_never_flips switchyard/device/proxy_ring.hpp RingOfTwo "data race|assertion|deadlock"
  [[what.slots[i].head | lap_bit(ticket + uint64_t(i))]] [[what.slots[i].head | kLapBit]])
switchyard_mutant(lap_not_looked_at switchyard/device/proxy_ring.hpp RingOfTwo "data race|assertion"
  [[if ((head & kLapBit) != lap_bit(ticket)) return false;]] [[if (head == 0) return false;]])
switchyard_mutant(room_for_one_too_many switchyard/device/proxy_ring.hpp RingOfTwo "data race|assertion"
  [[return end - now_taken <= kNumSlots;]] [[return end - now_taken <= kNumSlots + 1;]])
switchyard_mutant(copy_has_room_for_one_too_many switchyard/device/proxy_ring.hpp RingOfFour "data race|assertion"
  [[if (end - seen <= kNumSlots) return true;]] [[if (end - seen <= kNumSlots + 1) return true;]])
switchyard_mutant(room_for_the_extension_alone switchyard/device/proxy_ring.hpp RingOfTwoExtensions "data race|assertion"
  [[const uint64_t end = ticket + uint64_t(what.num_slots);]] [[const uint64_t end = ticket + 1;]])
switchyard_mutant(extension_with_a_ticket_of_its_own switchyard/device/proxy_ring.hpp TwoProducersExtensions
  "data race|assertion|deadlock"
  [[ticket = p.fetch_add_thread(&next_ticket, uint64_t(what.num_slots));]]
  [[ticket = p.fetch_add_thread(&next_ticket, 1);
    if (what.num_slots == 2) p.fetch_add_thread(&next_ticket, 1);]])
switchyard_mutant(flush_told_relaxed switchyard/device/proxy_ring.hpp RingFlushes "data race"
  [[p.store_release_thread(&num_flushed, ticket);]] [[p.store_relaxed_thread(&num_flushed, ticket);]])
switchyard_mutant(flush_read_relaxed switchyard/device/proxy_ring.hpp RingFlushes "data race"
  [[p.load_acquire_thread(&num_flushed)]] [[p.load_relaxed_thread(&num_flushed)]])
switchyard_mutant(drained_read_relaxed switchyard/device/proxy_ring.hpp ReservedRing "data race"
  [[return p.load_acquire_thread(&taken) ==]] [[return p.load_relaxed_thread(&taken) ==]])
switchyard_mutant(drained_but_for_one switchyard/device/proxy_ring.hpp ReservedRing "data race|assertion"
  [[return p.load_acquire_thread(&taken) == p]] [[return p.load_acquire_thread(&taken) + 1 >= p]])
switchyard_mutant(drained_inverted switchyard/device/net.hpp ReservedRing "data race|assertion"
  [[put.num_bytes == 0 && ring->is_drained(p)]] [[put.num_bytes == 0 && !ring->is_drained(p)]])
switchyard_mutant(signals_never_in_line switchyard/device/net.hpp ReservedRing "data race|assertion"
  [[put.num_bytes == 0 && ring->is_drained(p)]] [[put.num_bytes == 0]])

# --- signals on an unordered network ---

switchyard_mutant(signal_applied_when_it_arrives net/signal_order.hpp Arrivals "assertion|data race"
  [[    slot = {true, signal};]]
  [[    if (signal.value != 0) apply(signal);
    slot = {true, Signal{}};]])
switchyard_mutant(gap_skipped net/signal_order.hpp Arrivals "assertion|data race"
  [[    slot = {true, signal};]]
  [[    slot = {true, signal};
    next_ = sequence;]])
switchyard_mutant(held_signals_forgotten net/signal_order.hpp Arrivals "assertion|deadlock"
  [[      next_ = (next_ + 1) & kMask;]]
  [[      next_ = (next_ + 1) & kMask;
      break;]])
switchyard_mutant(slot_not_cleared net/signal_order.hpp Arrivals "assertion"
  [[      first->arrived = false;]] [[      if (next_ % 2 == 0) first->arrived = false;]])
switchyard_mutant(numbers_do_not_wrap net/signal_order.hpp ArrivalsRoundTheNumbers "assertion|deadlock"
  [[((sequence - next_) & kMask)]] [[(sequence - next_)]])
switchyard_mutant(window_not_looked_at net/signal_order.hpp ArrivalsAStray "assertion"
  [[if (((sequence - next_) & kMask) >= kWindow) return false;]] [[]])
switchyard_mutant(second_arrival_accepted net/signal_order.hpp ArrivalsOneTwice "assertion"
  [[if (slot.arrived) return false;]] [[]])

# --- what ring_model.cc and signal_model.cc were extracted from ---

foreach(line
    "if (lane.next != first) lane.ring->done(kHost, lane.next);"
    "const NetPost result = endpoint_.flush();"
    "lane.ring->flushed(kHost, ++lane.next);"
    "if (!lane.ring->take(kHost, lane.next, descriptor)) return NetPost::kBusy;"
    "read_descriptor(descriptor, lane.put);"
    "lane.put = {};")
  switchyard_require_once(${CMAKE_SOURCE_DIR}/src/net/proxy.cc "${line}")
endforeach()
foreach(line
    ".fetch_add(due.value, std::memory_order_release)"
    "peers_[rank].incoming.arrive(sequence, signal, apply)")
  switchyard_require_once(${CMAKE_SOURCE_DIR}/src/net/ofi_completions.cc "${line}")
endforeach()
switchyard_require_once(${CMAKE_SOURCE_DIR}/src/net/ofi_endpoint.hpp "outgoing.delivered(operation->sequence)")
switchyard_require_once(${CMAKE_SOURCE_DIR}/src/net/ofi_posting.cc "outgoing.posted()")

# --- what stream_model.hpp was extracted from: these lines are in its functions ---

set(SWITCHYARD_STREAM_SOURCE ${CMAKE_SOURCE_DIR}/src/platform/host/stream.cc)
foreach(line
    "posted_.store(sequence + 1, std::memory_order_release)"
    "stopping_.store(true, std::memory_order_release)"
    "worker_sleeps_.exchange(1, std::memory_order_acq_rel)"
    "while (idle() && !stopping_.load(std::memory_order_relaxed) && worker_sleeps_.load(std::memory_order_relaxed) != 0 &&"
    "futex_wait(worker_sleeps_, 1, "
    "completed_.store(sequence + 1, std::memory_order_release)"
    "wake_at_.fetch_or(0, std::memory_order_acq_rel)"
    "wake_at_.store(0, std::memory_order_release)"
    "num_wakes_.fetch_add(1, std::memory_order_release)"
    "futex_wake_all(num_wakes_)"
    "num_wakes_.load(std::memory_order_acquire)"
    "wake_at_.compare_exchange_weak(seen, wanted, std::memory_order_acq_rel, std::memory_order_relaxed)"
    "if (completed() < sequence) futex_wait(num_wakes_, num_wakes, deadline)")
  switchyard_require_once(${SWITCHYARD_STREAM_SOURCE} "${line}")
endforeach()
