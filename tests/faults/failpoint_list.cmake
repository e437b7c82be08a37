# Writes the names of all failpoints in SOURCES (a list of files) to OUTPUT, as lines for a table in C++:
#   {"group.before_agreement", true},
# true: the place can also fail (SWITCHYARD_FAILPOINT_TRY), not only die or stall.
set(lines "")
foreach(source IN LISTS SOURCES)
  file(STRINGS ${source} hits REGEX "^ *SWITCHYARD_(KERNEL_)?FAILPOINT(_TRY)?\\(\"")
  foreach(hit IN LISTS hits)
    string(REGEX MATCH "FAILPOINT(_TRY)?\\(\"([^\"]+)\"" place "${hit}")
    if(CMAKE_MATCH_1)
      list(APPEND lines "{\"${CMAKE_MATCH_2}\", true},")
    else()
      list(APPEND lines "{\"${CMAKE_MATCH_2}\", false},")
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES lines)
list(SORT lines)
list(JOIN lines "\n" content)
file(WRITE ${OUTPUT} "${content}\n")
