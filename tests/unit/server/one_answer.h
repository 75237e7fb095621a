// A service that answers one question of an operator, as a process of its own.

#ifndef FRMPS_TESTS_UNIT_SERVER_ONE_ANSWER_H
#define FRMPS_TESTS_UNIT_SERVER_ONE_ANSWER_H

#include <stdint.h>
#include <sys/types.h>

/** So many times before it answers it hangs up, as a daemon does that dies over a question. */
extern unsigned one_answer_deaths;

/** Listens at a path. It ends by itself when the asker closes, or after 20 s. Return: the process,
 * to be reaped */
pid_t one_answer_start(const char *path, int32_t code, const char *json);

#endif
