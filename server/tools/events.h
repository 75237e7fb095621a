// frmpsctl events: past events, and on request new ones, from documents of the service
// (control/events.c). Single thread; blocks.

#ifndef FRMPS_SERVER_TOOLS_EVENTS_H
#define FRMPS_SERVER_TOOLS_EVENTS_H

#include <stdio.h>

struct call;

/**
 * Prints the events that the service has stored, the latest last. With call->follow, new events
 * follow until the service ends; a line gives the number of events that the service had dropped
 * before they were requested. With call->json the output is a document, and with both there is a
 * document in each line, {"missed": NUMBER} for lost events.
 * Return: exit code of the program, after an error line
 */
int events_show(const struct call *call, FILE *out);

#endif
