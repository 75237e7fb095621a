// SM partitions: units of the device's multiprocessors that belong to the programs which name the
// partition (CUDA_MPS_SM_PARTITION). Which units that are is decided here; what it means while
// programs run, in executor/cap.c. An operator makes, resizes and removes partitions at any moment,
// and tells the sessions (session_tell_share()). One unit at least stays for programs without a
// partition.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_PARTITION_H
#define FRMPS_SERVER_SESSION_PARTITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct daemon;

#define PARTITIONS_MAX 32u
/* "p4294967295", with its end. */
#define PARTITION_NAME 12u
/* Of a label, with its end. */
#define PARTITION_LABEL 64u

struct partition {
	uint32_t number; /* never given out twice: who names one that is gone does not get another one */
	uint64_t units;	 /* as bits (backend/backend.h) */
	char label[PARTITION_LABEL]; /* a second name, of the operator's choice; empty: none */
};

struct partitions {
	uint32_t latest; /* number given out */
	uint32_t count;
	struct partition all[PARTITIONS_MAX];
};

/** The partition of that name or label, with or without the device's UUID and a slash before it.
 * Return: NULL if there is none */
struct partition *partition_find(struct daemon *daemon, const char *name);
void partition_name(const struct partition *partition, char ret_name[PARTITION_NAME]);

/** Units of the partition with that number; 0: there is none. */
uint64_t partition_units(const struct daemon *daemon, uint32_t number);
/** Units that are in no partition. */
uint64_t partition_rest(const struct daemon *daemon);
/** How many units partitions can have beside those that they have. */
uint32_t partition_room(const struct daemon *daemon);
/** How many sessions have it. */
uint32_t partition_sessions(const struct daemon *daemon, uint32_t number);

/** Whether a text can be a label: lower-case letters, digits and underscores, and no name that
 * partition_name() gives. */
bool partition_is_label(const char *text);

/** Makes one of `units` units, at most partition_room(). @label: empty, or one that no partition
 * has. Return: NULL if there are too many */
struct partition *partition_add(struct daemon *daemon, uint32_t units, const char *label);
/** Gives it more or fewer units, at most partition_room() more. */
void partition_resize(struct daemon *daemon, struct partition *partition, uint32_t units);
/** Its sessions go on as those without a partition. */
void partition_remove(struct daemon *daemon, struct partition *partition);

#endif
