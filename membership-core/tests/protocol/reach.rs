//! The question which silos one does not reach, from somebody who may be no silo.

use super::whole::World;
use super::*;
use membership_core::protocol::{Destination, Header, Input, LinkId, PeerIdentity};

#[test]
fn whoever_asks_for_the_reach_is_answered_and_changes_nothing() {
    let mut w = World::new();
    let stranger = silo(9);
    let me = w.protocol.me().unwrap();
    for (to, answers) in [(Some(me), 1), (None, 1), (Some(silo(3)), 0)] {
        let mut header = Header::new(
            setup().identity.cluster.fingerprint(),
            stranger,
            InstanceId::new(99),
        );
        header.to = to;
        let effects = w.take(Input::Message {
            link: LinkId(4),
            peer: PeerIdentity::Proven(header.instance),
            header,
            body: Arc::new(Message::AskReach { nonce: 5 }),
        });
        let sent: Vec<&Effect> = effects
            .iter()
            .filter(|e| !matches!(e, Effect::Observe(_)))
            .collect();
        assert_eq!(sent.len(), answers, "{effects:?}");
        for effect in sent {
            let Effect::Send { to, body, .. } = effect else {
                panic!("{effect:?}")
            };
            assert_eq!(*to, Destination::Link(LinkId(4)));
            let unreached = Vec::new();
            assert_eq!(
                **body,
                Message::Reach {
                    nonce: 5,
                    unreached
                }
            );
        }
    }
}
