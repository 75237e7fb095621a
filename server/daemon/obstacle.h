// Obstacles for a set of sessions that goes to another device (depart.h): the giver's side. A
// reason names the session, unless that is the first, and is valid until the next call. Daemon,
// loop thread only.

#ifndef FRMPS_SERVER_DAEMON_OBSTACLE_H
#define FRMPS_SERVER_DAEMON_OBSTACLE_H

struct swap_group;

/** Return: NULL, or why the set cannot leave */
const char *obstacle_of_set(const struct swap_group *members);
/** Return: NULL, or the operator's order that comes first */
const char *obstacle_by_order(const struct swap_group *members);
/** Return: NULL, or the event that has to come first, and will */
const char *obstacle_of_moment(const struct swap_group *members);
/** Return: NULL, or why the set is not the one any more that the first session belongs to */
const char *obstacle_by_change(const struct swap_group *members);

#endif
