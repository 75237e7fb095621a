// Events of a trace and their tracks. There is a track for each thread of the program, by the
// thread's id, and one for each stream. Any thread.

#ifndef FRMPS_CLIENT_TRACE_TRACK_H
#define FRMPS_CLIENT_TRACE_TRACK_H

#include <stdbool.h>
#include <stdint.h>

#include "client/trace/line.h"

/** Names the process. Comes before all events. */
void track_start(void);

/** The process's own track, for events of the whole process. */
uint64_t track_of_process(void);

/** The calling thread's track. */
uint64_t track_of_thread(void);

/** The track of a stream, by its id (cuStreamGetId). */
uint64_t track_of_stream(uint64_t id);
/** Names that track. @is_default: of the legacy default stream */
void track_name_stream(uint64_t id, bool is_default);

/**
 * Begins an event: all but what is special to its phase. Until track_end() no other event begins.
 * @phase: of the format
 * @ns: monotonic
 */
void track_begin(struct trace_line *line, const char *phase, uint64_t track, uint64_t ns, const char *name);

/** Ends the event and puts it into the file. */
void track_end(struct trace_line *line);

#endif
