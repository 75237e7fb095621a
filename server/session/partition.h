// SM partitions: units of the device's multiprocessors that belong to the programs which name the
// partition (CUDA_MPS_SM_PARTITION). This file chooses the units; executor/cap.c applies them while
// programs run. An operator makes, resizes and removes partitions at any moment, and the daemon
// informs executors (session_tell_share()). At least one unit stays for programs without a
// partition. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_PARTITION_H
#define FRMPS_SERVER_SESSION_PARTITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct daemon;

#define PARTITIONS_MAX 32u
/* "p4294967295", with the NUL. */
#define PARTITION_NAME 12u
/* Of a label, with the NUL. */
#define PARTITION_LABEL 64u

struct partition {
	uint32_t number;	     /* never reused: the name of a removed partition never names another */
	uint64_t units;		     /* as bits (backend/backend.h) */
	char label[PARTITION_LABEL]; /* a second name, of the operator's choice; empty: none */
};

struct partitions {
	uint32_t latest; /* number given out */
	uint32_t count;
	struct partition all[PARTITIONS_MAX];
};

/** The partition of that name or label, with or without the device's UUID and a slash in front.
 * Return: NULL if there is none */
struct partition *partition_find(struct daemon *daemon, const char *name);
void partition_name(const struct partition *partition, char ret_name[PARTITION_NAME]);

/** Units of the partition with that number; 0: there is none. */
uint64_t partition_units(const struct daemon *daemon, uint32_t number);
/** Units that are in no partition. */
uint64_t partition_rest(const struct daemon *daemon);
/** Units that partitions can have beside their present units. */
uint32_t partition_room(const struct daemon *daemon);
/** The number of sessions in the partition. */
uint32_t partition_sessions(const struct daemon *daemon, uint32_t number);

/** True if a text can be a label: lower-case letters, digits and underscores, and no name that
 * partition_name() gives. */
bool partition_is_label(const char *text);

/** Makes a partition of `units` units, at most partition_room(). @label: empty, or a label that no
 * partition has. Return: NULL if there are too many */
struct partition *partition_add(struct daemon *daemon, uint32_t units, const char *label);
/** Gives the partition more or fewer units, at most partition_room() more. */
void partition_resize(struct daemon *daemon, struct partition *partition, uint32_t units);
/** Sessions of the partition go on like those without a partition. */
void partition_remove(struct daemon *daemon, struct partition *partition);

#endif
