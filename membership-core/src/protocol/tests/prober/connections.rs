//! What refused and lost connections mean.

use super::*;

#[test]
fn a_refused_connection_is_a_miss_at_once_and_two_make_a_suspect() {
    let mut p = Probing::new(3);
    p.next_probe();
    let endpoint = silo(2).endpoint();
    p.prober.on_refused(&mut p.ctx, endpoint, 1);
    assert_eq!(p.suspects(), []);
    assert_eq!(p.probes().len(), 1, "another one at once");
    p.prober.on_refused(&mut p.ctx, endpoint, 1);
    assert_eq!(p.suspects(), [silo(2)]);
    assert!(p.prober.silence(&silo(2)).unwrap().refused);
    assert_eq!(misses(&mut p.ctx), [(2, true)]);
    // The probes of a suspect keep their pace, however many messages are refused.
    for _ in 0..5 {
        p.prober.on_refused(&mut p.ctx, endpoint, 1);
    }
    assert_eq!(p.probes().len(), 0);
}

#[test]
fn another_message_that_is_refused_brings_a_probe_and_no_miss() {
    let mut p = Probing::new(2);
    p.prober.on_refused(&mut p.ctx, silo(2).endpoint(), 1);
    assert!(p.prober.silence(&silo(2)).is_none());
    assert_eq!(p.probes().len(), 1);
    p.prober.on_refused(&mut p.ctx, silo(9).endpoint(), 1);
    assert_eq!(p.probes().len(), 0, "nobody is probed there");
}

#[test]
fn a_lost_connection_is_followed_by_a_probe_at_once() {
    let mut p = Probing::new(2);
    p.prober.on_disconnected(&mut p.ctx, silo(2).endpoint(), 1);
    let [nonce] = p.probes()[..] else {
        panic!("no probe")
    };
    assert!(p.ack(nonce));
    // One that was under way may have been lost: it is no miss, but the silence began with it.
    let lost = p.next_probe();
    let sent = p.ctx.now.mono;
    pass_time(&mut p.ctx, ms(700));
    p.prober.on_disconnected(&mut p.ctx, silo(2).endpoint(), 1);
    assert_eq!(p.probes().len(), 1);
    assert!(p.prober.silence(&silo(2)).is_none());
    p.suspect();
    assert_eq!(p.ctx.now.mono.since(sent), ms(700 + 3_000));
    assert_eq!(p.prober.silence(&silo(2)).unwrap().since, sent);
    p.probes();
    p.prober.on_disconnected(&mut p.ctx, silo(2).endpoint(), 1);
    assert_eq!(p.probes().len(), 0, "a suspect keeps its pace");
    assert!(p.ack(lost), "it was not lost, after all");
}

#[test]
fn a_machine_that_closes_every_connection_is_suspected() {
    let mut p = Probing::new(2);
    p.next_probe();
    let first = p.ctx.now.mono;
    let mut probes = 0;
    while p.suspects().is_empty() {
        for _ in 0..3 {
            p.prober.on_disconnected(&mut p.ctx, silo(2).endpoint(), 1);
        }
        probes += p.probes().len();
        p.wake();
    }
    assert!(p.ctx.now.mono.since(first) <= ms(4_500));
    assert!(probes <= 3, "{probes} probes");
}
